//! The polynomials, by name.

/// The coefficients `(a, b, c)` of Keller Jordan's quintic, as Moonlight and Kimi K2 use them.
///
/// They maximise the slope at zero, so small singular values grow as fast as possible. The price is
/// that singular values end near one rather than at one: after five steps, between 0.68 and 1.21 for
/// every singular value that started above about 0.15 % of the Frobenius norm.
pub const STANDARD_COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// Five steps of Polar Express (Amsel et al., [arXiv:2505.16932](https://arxiv.org/abs/2505.16932)): the polynomials that are optimal one after the other
/// for singular values from 0.001 on.
///
/// Each is made for inputs 1 % larger than they are (`a / s, b / s^3, c / s^5` with `s = 1.01`), so that rounding cannot push a singular value out of the
/// interval in which the polynomials converge. After five steps, singular values that started above 0.1 % of the norm are between 0.84 and 1.15.
pub const POLAR_EXPRESS_COEFFICIENTS: [[f64; 3]; 5] = [
    safe(8.28721201814563, -23.595886519098837, 17.300387312530933),
    safe(4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    safe(3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    safe(3.3184196573706015, -2.488488024314874, 0.51004894012372),
    safe(2.300652019954817, -1.6689039845747493, 0.4188073119525673),
];

const fn safe(a: f64, b: f64, c: f64) -> [f64; 3] {
    const S: f64 = 1.01;
    [a / S, b / (S * S * S), c / (S * S * S * S * S)]
}

/// Ten steps in two stages, as DeepSeek-V4 is trained with: eight of the standard polynomial, and two of one that brings what is near one to one.
pub const TWO_STAGE_COEFFICIENTS: [[f64; 3]; 10] = {
    let mut steps = [STANDARD_COEFFICIENTS; 10];
    steps[8] = [2.0, -1.5, 0.5];
    steps[9] = [2.0, -1.5, 0.5];
    steps
};
