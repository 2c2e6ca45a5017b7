//! What the operators, their options, the layer and the state files refuse: by the name of what does not fit, before anything is computed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{DType, Device, Tensor};
use burn_kimi_linear::kda::{
    KdaGate, KdaPart, KdaProjections, KdaSummary, kda_context_parallel, kda_projected, kda_summary,
    kda_verify, kda_verify_projected,
};
use burn_kimi_linear::{
    ForgetGate, KdaOptions, KdaState, KimiDeltaAttentionConfig, KimiDeltaAttentionState,
    StateBytesError, kda,
};

use crate::engines::{Engine, engines};

const BATCH: usize = 2;
const TOKENS: usize = 4;
const HEADS: usize = 1;
const VALUE_HEADS: usize = 2;
const KEY: usize = 4;
const VALUE: usize = 6;

/// Everything that both entries of the operator take.
#[derive(Clone)]
struct Given {
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    g: Tensor<4>,
    beta: Tensor<3>,
    a_log: Tensor<1>,
    dt_bias: Tensor<2>,
    state: Tensor<4>,
    gate: ForgetGate,
}

impl Given {
    /// Inputs in `dtype`, with a state that fits them.
    fn new(device: &Device, dtype: DType) -> Self {
        let to = (device, dtype);
        let memory = match dtype {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        Self {
            q: Tensor::full([BATCH, TOKENS, HEADS, KEY], 0.5, to),
            k: Tensor::full([BATCH, TOKENS, HEADS, KEY], 0.5, to),
            v: Tensor::ones([BATCH, TOKENS, VALUE_HEADS, VALUE], to),
            g: Tensor::full([BATCH, TOKENS, VALUE_HEADS, KEY], -0.5, to),
            beta: Tensor::full([BATCH, TOKENS, VALUE_HEADS], 0.5, to),
            a_log: Tensor::zeros([VALUE_HEADS], to),
            dt_bias: Tensor::zeros([VALUE_HEADS, KEY], to),
            state: Tensor::zeros([BATCH, VALUE_HEADS, KEY, VALUE], (device, memory)),
            gate: ForgetGate::Softplus,
        }
    }

    fn single(engine: &Engine) -> Self {
        Self::new(&engine.device, DType::F32)
    }

    /// With a change made by `edit`.
    fn with(mut self, edit: impl FnOnce(&mut Self)) -> Self {
        edit(&mut self);
        self
    }

    fn start(&self) -> Option<KdaState> {
        Some(KdaState::from_key_value(self.state.clone()))
    }

    fn projections(&self) -> (KdaProjections, KdaGate) {
        let projections = KdaProjections {
            q: self.q.clone(),
            k: self.k.clone(),
            v: self.v.clone(),
            decay: self.g.clone(),
            write: self.beta.clone(),
        };
        let gate = KdaGate {
            gate: self.gate,
            a_log: Some(self.a_log.clone()),
            dt_bias: self.dt_bias.clone(),
            allow_negative_eigenvalues: false,
        };
        (projections, gate)
    }

    fn kda(&self, options: &KdaOptions) -> (Tensor<4>, KdaState) {
        let Self {
            q, k, v, g, beta, ..
        } = self.clone();
        kda(q, k, v, g, beta, self.start(), options)
    }

    fn projected(&self, options: &KdaOptions) -> (Tensor<4>, KdaState) {
        let (projections, gate) = self.projections();
        kda_projected(projections, gate, self.start(), options)
    }

    fn part(&self) -> KdaPart {
        let Self {
            q, k, v, g, beta, ..
        } = self.clone();
        KdaPart { q, k, v, g, beta }
    }

    fn summary(&self, options: &KdaOptions) -> KdaSummary {
        let KdaPart { k, v, g, beta, .. } = self.part();
        kda_summary(k, v, g, beta, options)
    }

    /// Both entries, and the same for verification, refuse with `message`.
    #[track_caller]
    fn assert_refused_by_both(&self, options: &KdaOptions, message: &str) {
        self.assert_refused_by_kda(options, message);
        self.assert_refused_by_projected(options, message);
    }

    #[track_caller]
    fn assert_refused_by_kda(&self, options: &KdaOptions, message: &str) {
        assert_refused(message, || drop(self.kda(options)));
        let KdaPart { q, k, v, g, beta } = self.part();
        let verify = || drop(kda_verify(q, k, v, g, beta, self.start(), options));
        assert_refused(message, verify);
    }

    #[track_caller]
    fn assert_refused_by_projected(&self, options: &KdaOptions, message: &str) {
        assert_refused(message, || drop(self.projected(options)));
        let (x, gate) = self.projections();
        let verify = || drop(kda_verify_projected(x, gate, self.start(), options));
        assert_refused(message, verify);
    }
}

/// The call panics with a text that has `message` in it.
#[track_caller]
fn assert_refused(message: &str, call: impl FnOnce()) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else {
        panic!("nothing was refused with {message:?}");
    };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.expect("a panic with a text");
    assert!(text.contains(message), "{message:?} is not in {text:?}");
}

/// Brings one of the tensors into another dtype.
type Cast = fn(&mut Given, DType);

/// The tensors beside `v`, by their names in [`kda`] and in [`kda_projected`], which alone takes the last two.
const BESIDE_V: [(Option<&str>, &str, Cast); 6] = [
    (Some("q"), "q", |x, to| x.q = x.q.clone().cast(to)),
    (Some("k"), "k", |x, to| x.k = x.k.clone().cast(to)),
    (Some("g"), "decay", |x, to| x.g = x.g.clone().cast(to)),
    (Some("beta"), "write", |x, to| {
        x.beta = x.beta.clone().cast(to);
    }),
    (None, "a_log", |x, to| x.a_log = x.a_log.clone().cast(to)),
    (None, "dt_bias", |x, to| {
        x.dt_bias = x.dt_bias.clone().cast(to);
    }),
];

#[test]
fn f64_beside_another_dtype_is_refused() {
    for engine in engines() {
        if !engine.supports(DType::F64) {
            continue;
        }
        for (values, other) in [(DType::F32, DType::F64), (DType::F64, DType::F32)] {
            for (in_kda, in_projected, cast) in BESIDE_V {
                let x = Given::new(&engine.device, values).with(|x| cast(x, other));
                let stored =
                    |name: &str| format!("{name} is stored as {other:?}, but v as {values:?}");
                if let Some(name) = in_kda {
                    x.assert_refused_by_kda(&engine.options(), &stored(name));
                }
                x.assert_refused_by_projected(&engine.options(), &stored(in_projected));
            }
        }
    }
}

/// Every tensor has its own storage, the parameters of the gate too.
#[test]
fn half_precision_beside_f32_is_taken() {
    for engine in engines() {
        for dtype in [DType::F16, DType::BF16] {
            if !engine.supports(dtype) {
                continue;
            }
            for (in_kda, _, cast) in BESIDE_V {
                let x = Given::single(&engine).with(|x| cast(x, dtype));
                if in_kda.is_some() {
                    let (o, state) = x.kda(&engine.options());
                    assert_eq!(o.dtype(), DType::F32);
                    assert_eq!(state.into_key_value().dtype(), DType::F32);
                }
                let (o, state) = x.projected(&engine.options());
                assert_eq!(o.dtype(), DType::F32);
                assert_eq!(state.into_key_value().dtype(), DType::F32);
            }
        }
    }
}

#[test]
fn a_state_in_another_dtype_is_refused() {
    for engine in engines() {
        for stored in [DType::F16, DType::BF16, DType::F64] {
            if !engine.supports(stored) {
                continue;
            }
            let x = Given::single(&engine).with(|x| x.state = x.state.clone().cast(stored));
            let message =
                format!("initial_state is stored as {stored:?}, which should be F32, as v is F32");
            x.assert_refused_by_both(&engine.options(), &message);
        }
        for inputs in [DType::F16, DType::BF16, DType::F64] {
            if !engine.supports(inputs) {
                continue;
            }
            let x = Given::new(&engine.device, inputs);
            let wanted = x.state.dtype();
            let wrong = match inputs {
                DType::F64 => DType::F32,
                _ => inputs,
            };
            let x = x.with(|x| x.state = x.state.clone().cast(wrong));
            let message = format!(
                "initial_state is stored as {wrong:?}, which should be {wanted:?}, as v is {inputs:?}"
            );
            x.assert_refused_by_both(&engine.options(), &message);
        }
    }
}

/// What the layer hands out before the first token must be what it takes with it.
#[test]
fn a_layers_state_before_the_first_token_has_the_dtype_of_a_memory() {
    let device = Device::flex();
    let layer = KimiDeltaAttentionConfig::new(12, 2, 4).init(&device);
    for (dtype, memory) in [
        (DType::F32, DType::F32),
        (DType::BF16, DType::F32),
        (DType::F64, DType::F64),
    ] {
        let x = Tensor::zeros([1, 0, 12], (&device, dtype));
        let (_, state) = layer.forward_with_state(x, None);
        assert_eq!(state.memory.into_key_value().dtype(), memory);
        assert!(state.windows.iter().all(|window| window.dtype() == dtype));
    }
}

#[test]
fn other_shapes_are_refused_by_name() {
    type Cut = fn(&mut Given);
    let of_both: [(&str, &str, &str, Cut); 5] = [
        (
            "k",
            "k",
            "[2, 3, 1, 4], which should be [2, 4, 1, 4]",
            |x| {
                x.k = x.k.clone().narrow(1, 0, 3);
            },
        ),
        (
            "v",
            "v",
            "[2, 3, 2, 6], which should be [2, 4, 2, 6]",
            |x| {
                x.v = x.v.clone().narrow(1, 0, 3);
            },
        ),
        (
            "g",
            "decay",
            "[2, 4, 2, 1], which should be [2, 4, 2, 4]",
            |x| {
                x.g = x.g.clone().narrow(3, 0, 1);
            },
        ),
        (
            "beta",
            "write",
            "[2, 4, 1], which should be [2, 4, 2]",
            |x| {
                x.beta = x.beta.clone().narrow(2, 0, 1);
            },
        ),
        (
            "initial_state",
            "initial_state",
            "[2, 1, 4, 6], which should be [2, 2, 4, 6]",
            |x| {
                x.state = x.state.clone().narrow(1, 0, 1);
            },
        ),
    ];
    let of_the_gate: [(&str, &str, Cut); 2] = [
        ("a_log", "[1], which should be [2]", |x| {
            x.a_log = x.a_log.clone().narrow(0, 0, 1);
        }),
        ("dt_bias", "[2, 1], which should be [2, 4]", |x| {
            x.dt_bias = x.dt_bias.clone().narrow(1, 0, 1);
        }),
    ];
    for engine in engines() {
        let options = engine.options();
        for (in_kda, in_projected, shapes, cut) in of_both {
            let x = Given::single(&engine).with(cut);
            x.assert_refused_by_kda(&options, &format!("{in_kda} has the shape {shapes}"));
            let message = format!("{in_projected} has the shape {shapes}");
            x.assert_refused_by_projected(&options, &message);
        }
        for (name, shapes, cut) in of_the_gate {
            let x = Given::single(&engine).with(cut);
            let message = format!("{name} has the shape {shapes}");
            x.assert_refused_by_projected(&options, &message);
        }
    }
}

/// Only where the build has two.
#[test]
fn tensors_on_another_device_are_refused_by_name() {
    let engines = engines();
    for engine in &engines {
        let other = engines.iter().find(|other| other.device != engine.device);
        let Some(Engine { device, .. }) = other else {
            continue;
        };
        let options = engine.options();
        let x = Given::single(engine).with(|x| x.state = x.state.clone().to_device(device));
        x.assert_refused_by_both(&options, "initial_state is on ");
        let x = Given::single(engine).with(|x| x.k = x.k.clone().to_device(device));
        x.assert_refused_by_both(&options, "k is on ");
        let x = Given::single(engine).with(|x| x.dt_bias = x.dt_bias.clone().to_device(device));
        x.assert_refused_by_projected(&options, "dt_bias is on ");

        let x = Given::single(engine);
        let away = x.start().expect("a state").to_device(device);
        let summary = x.summary(&options);
        assert_refused("state is on ", || drop(summary.apply(away)));
        let next = KdaSummary {
            transition: summary.transition.clone().to_device(device),
            writes: summary.writes.clone().to_device(device),
        };
        assert_refused("next.writes is on ", || drop(summary.then(&next)));
    }
}

#[test]
fn scales_that_are_no_numbers_in_f32_are_refused() {
    for scale in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300] {
        let message = format!("scale must be a number that f32 can hold, got {scale:?}");
        assert_refused(&message, || drop(KdaOptions::new().with_scale(scale)));
    }
    for engine in engines() {
        for scale in [0.0, -1.0, 1e30] {
            let (o, _) = Given::single(&engine).kda(&engine.options().with_scale(scale));
            assert_eq!(o.dims(), [BATCH, TOKENS, VALUE_HEADS, VALUE]);
        }
    }
}

#[test]
fn chunks_out_of_range_are_refused() {
    for (chunk_size, message) in [
        (0, "chunk_size must be a power of two and at least 2, got 0"),
        (1, "chunk_size must be a power of two and at least 2, got 1"),
        (2048, "chunk_size must be at most 1024, got 2048"),
        (1 << 31, "chunk_size must be at most 1024, got 2147483648"),
    ] {
        assert_refused(message, || {
            drop(KdaOptions::new().with_chunk_size(chunk_size));
        });
    }
    for engine in engines() {
        let (o, _) = Given::single(&engine).kda(&engine.options().with_chunk_size(1024));
        assert_eq!(o.dims(), [BATCH, TOKENS, VALUE_HEADS, VALUE]);
    }
}

/// `f32` makes 0 of the last one.
const BAD_BOUNDS: [f64; 7] = [
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    -1e300,
    5.0,
    0.0,
    -1e-300,
];

#[test]
fn lower_bounds_that_are_no_negative_numbers_in_f32_are_refused() {
    for engine in engines() {
        for bound in BAD_BOUNDS {
            let x = Given::single(&engine).with(|x| x.gate = ForgetGate::LowerBound(bound));
            let message = format!("the lower bound must be a negative number, got {bound:?}");
            x.assert_refused_by_projected(&engine.options(), &message);
        }
    }
}

#[test]
fn a_layer_with_a_bad_lower_bound_is_refused_when_it_is_created() {
    for bound in BAD_BOUNDS {
        let config = KimiDeltaAttentionConfig::new(12, 2, 4);
        let config = config.with_gate(ForgetGate::LowerBound(bound));
        let message = format!("the lower bound of `gate` must be a negative number, got {bound:?}");
        assert_refused(&message, || drop(config.init(&Device::flex())));
    }
}

#[test]
fn options_about_whole_batches_are_refused_on_parts() {
    for engine in engines() {
        let x = Given::single(&engine);
        let options = engine.options();
        for (option, options) in [
            ("with_lengths", options.clone().with_lengths([4, 4])),
            (
                "with_cumulative_lengths",
                options.clone().with_cumulative_lengths([0, 4]),
            ),
            ("with_slots", options.clone().with_slots([1, 0])),
        ] {
            let message = format!("but the options were given `{option}`");
            assert_refused(
                &format!("one whole sequence with a state of its own, {message}"),
                || {
                    drop(x.summary(&options));
                },
            );
            for count in [1, 2] {
                let parts = vec![x.part(); count];
                assert_refused(&message, || {
                    drop(kda_context_parallel(parts, None, &options));
                });
            }
        }
    }
}

/// By what the caller gave, not by the columns that stand behind the values inside.
#[test]
fn a_summary_names_the_tensor_that_does_not_fit() {
    for engine in engines() {
        let options = engine.options();
        let x = Given::single(&engine).with(|x| x.v = x.v.clone().narrow(1, 0, 3));
        let message = "v has the shape [2, 3, 2, 6], which should be [2, 4, 2, 6]";
        assert_refused(message, || drop(x.summary(&options)));
        let x = Given::single(&engine).with(|x| x.g = x.g.clone().narrow(2, 0, 1));
        let message = "g has the shape [2, 4, 1, 4], which should be [2, 4, 2, 4]";
        assert_refused(message, || drop(x.summary(&options)));
        let none = Tensor::zeros([BATCH, TOKENS, VALUE_HEADS, 0], &engine.device);
        let x = Given::single(&engine).with(|x| x.v = none);
        assert_refused("heads must have a width, got K = 4 and V = 0", || {
            drop(x.summary(&options));
        });
    }
}

/// A batch of one or a single head would be broadcast.
#[test]
fn summaries_broadcast_nothing() {
    for engine in engines() {
        let x = Given::single(&engine);
        let summary = x.summary(&engine.options());
        for axis in 0..4 {
            let state = KdaState::from_key_value(x.state.clone().narrow(axis, 0, 1));
            assert_refused("state has the shape ", || drop(summary.apply(state)));
            let next = KdaSummary {
                writes: summary.writes.clone().narrow(axis, 0, 1),
                ..summary.clone()
            };
            let message = match axis {
                // Another width of the values leaves `next` itself whole.
                3 => "next.writes has the shape [2, 2, 4, 1], which should be [2, 2, 4, 6]",
                _ => "transition has the shape [2, 2, 4, 4], which should be ",
            };
            assert_refused(message, || drop(summary.then(&next)));
        }
        let row = Given {
            q: x.q.clone().narrow(0, 0, 1),
            k: x.k.clone().narrow(0, 0, 1),
            v: x.v.clone().narrow(0, 0, 1),
            g: x.g.clone().narrow(0, 0, 1),
            beta: x.beta.clone().narrow(0, 0, 1),
            ..x.clone()
        };
        let of_one = row.summary(&engine.options());
        let message = "next.writes has the shape [1, 2, 4, 6], which should be [2, 2, 4, 6]";
        assert_refused(message, || drop(summary.then(&of_one)));
        if engine.supports(DType::BF16) {
            let state = KdaState::from_key_value(x.state.clone().cast(DType::BF16));
            let message = "state is stored as BF16, but writes as F32";
            assert_refused(message, || drop(summary.apply(state)));
        }

        let parts = vec![x.part(), row.part()];
        let message = "of part 1 is [1, 1, 2, 4, 6], which should be [2, 1, 2, 4, 6] as of part 0";
        assert_refused(message, || {
            drop(kda_context_parallel(parts, None, &engine.options()));
        });
        let state = KdaState::from_key_value(x.state.clone().narrow(0, 0, 1));
        let parts = vec![x.part(), x.part()];
        let message = "state has the shape [1, 2, 4, 6], which should be [2, 2, 4, 6]";
        assert_refused(message, || {
            drop(kda_context_parallel(parts, Some(state), &engine.options()));
        });
        assert_refused("there are no parts", || {
            drop(kda_context_parallel(vec![], None, &engine.options()));
        });
    }
}

/// A state file without data, with these tensors by name, dtype and shape.
fn file(tensors: &[(&str, &str, &[usize])]) -> Vec<u8> {
    let tensors = tensors.iter().map(|(name, dtype, shape)| {
        format!(r#","{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[0,0]}}"#)
    });
    let meaning =
        r#""format":"burn-kimi-linear state","version":"1","layout":"batch, head, key, value""#;
    let header = format!(
        r#"{{"__metadata__":{{{meaning}}}{}}}"#,
        tensors.collect::<String>()
    );
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes
}

const HUGE: usize = 1 << 40;

#[test]
fn files_with_impossible_shapes_are_refused() {
    let device = Device::flex();
    let empty: &[usize] = &[0, 2, 4, 6];
    let state = KdaState::from_bytes(&file(&[("memory", "F32", empty)]), &device);
    assert_eq!(state.expect("an empty batch").dims(), [0, 2, 4, 6]);

    let huge: &[usize] = &[0, HUGE, HUGE, HUGE];
    let bytes = file(&[("memory", "F32", huge)]);
    let error = KdaState::from_bytes(&bytes, &device).unwrap_err();
    assert!(matches!(error, StateBytesError::Size { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("`memory` has the shape [0, 1099511627776,"));

    // Where the 0 comes last, the format itself counts too far.
    let bytes = file(&[("memory", "F32", &[HUGE, HUGE, HUGE, 0])]);
    let error = KdaState::from_bytes(&bytes, &device).unwrap_err();
    assert!(matches!(error, StateBytesError::Unreadable(_)), "{error}");
    // And where the axes ask for more than there is, it says so without looking for room.
    let bytes = file(&[("memory", "F32", &[1, 1, HUGE, 1])]);
    let error = KdaState::from_bytes(&bytes, &device).unwrap_err();
    assert!(matches!(error, StateBytesError::Unreadable(_)), "{error}");

    let bytes = file(&[
        ("memory", "F32", empty),
        ("q_window", "F32", &[0, 3, 4]),
        ("k_window", "BF16", &[0, HUGE, HUGE]),
        ("v_window", "F32", &[0, 3, 12]),
    ]);
    let error = KimiDeltaAttentionState::from_bytes(&bytes, &device).unwrap_err();
    assert!(matches!(error, StateBytesError::Size { .. }), "{error}");
    assert!(error.to_string().contains("`k_window`"), "{error}");
}

#[test]
fn files_with_a_memory_in_half_precision_are_refused() {
    for dtype in ["F16", "BF16"] {
        let bytes = file(&[("memory", dtype, &[0, 2, 4, 6])]);
        let error = KdaState::from_bytes(&bytes, &Device::flex()).unwrap_err();
        assert!(matches!(error, StateBytesError::Dtype { .. }), "{error}");
        let message = format!("`memory` is stored as {dtype}");
        assert!(error.to_string().contains(&message), "{error}");
    }
}

#[test]
fn files_in_dtypes_that_the_device_has_not_are_refused() {
    let memory = Tensor::zeros([1, 2, 4, 6], (&Device::flex(), DType::F64));
    let bytes = KdaState::from_key_value(memory).to_bytes();
    for engine in engines() {
        match KdaState::from_bytes(&bytes, &engine.device) {
            Ok(state) => {
                assert!(engine.supports(DType::F64), "{}", engine.name);
                assert_eq!(state.into_key_value().dtype(), DType::F64);
            }
            Err(error) => {
                assert!(!engine.supports(DType::F64), "{}: {error}", engine.name);
                assert!(matches!(error, StateBytesError::Device { .. }), "{error}");
                let text = error.to_string();
                assert!(text.contains("`memory` is stored as F64"), "{text}");
            }
        }
    }
}

#[test]
fn files_of_parts_from_different_batches_are_refused() {
    let device = Device::flex();
    let bytes = file(&[
        ("memory", "F32", &[2, 2, 4, 0]),
        ("q_window", "F32", &[2, 0, 4]),
        ("k_window", "F32", &[1, 0, 4]),
        ("v_window", "F32", &[2, 0, 12]),
    ]);
    let error = KimiDeltaAttentionState::from_bytes(&bytes, &device).unwrap_err();
    assert!(matches!(error, StateBytesError::Batch { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("`k_window` is of 1 sequences, but `memory` is of 2"));
}

/// What could not be read again is not written either.
#[test]
fn states_that_no_file_may_hold_are_not_written() {
    let device = Device::flex();
    let memory =
        |dtype: DType| KdaState::from_key_value(Tensor::zeros([2, 2, 4, 6], (&device, dtype)));
    let window = |batch: usize, dtype: DType| Tensor::<3>::zeros([batch, 3, 4], (&device, dtype));
    let state = |batch: usize, dtype: DType| KimiDeltaAttentionState {
        memory: memory(dtype),
        windows: [2, 2, batch].map(|batch| window(batch, DType::BF16)),
    };
    for dtype in [DType::F16, DType::BF16] {
        let message = format!("`memory` is stored as {dtype:?}");
        assert_refused(&message, || drop(memory(dtype).to_bytes()));
        assert_refused(&message, || drop(state(2, dtype).to_bytes()));
    }
    let message = "`v_window` is of 1 sequences, but `memory` is of 2";
    assert_refused(message, || drop(state(1, DType::F32).to_bytes()));
    for dtype in [DType::F32, DType::F64] {
        let bytes = state(2, dtype).to_bytes();
        let back = KimiDeltaAttentionState::from_bytes(&bytes, &device).expect("the same state");
        assert_eq!(back.memory.into_key_value().dtype(), dtype);
        assert!(back.windows.iter().all(|w| w.dtype() == DType::BF16));
    }
}
