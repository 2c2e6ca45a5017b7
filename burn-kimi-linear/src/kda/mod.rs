//! The Kimi Delta Attention operator.
//!
//! KDA is a linear attention whose memory is one matrix a head. For each token and head, with key width `K`
//! and value width `V`:
//!
//! ```text
//! S'  = Diag(exp(g_t)) S_{t-1}              decay every key channel by its own gate
//! u_t = beta_t (v_t - S'^T k_t)             what the decayed memory does not yet say about k_t
//! S_t = S' + k_t u_t^T                      delta-rule update
//! o_t = S_t^T (scale q_t)                   read after the update
//! ```
//!
//! | tensor | shape | meaning |
//! |---|---|---|
//! | `q`, `k` | `[B, T, H, K]` | queries and keys, L2-normalised by the caller |
//! | `v` | `[B, T, HV, V]` | values; `HV` is a multiple of `H` |
//! | `g` | `[B, T, HV, K]` | natural logarithm of the decay, at most 0 and finite |
//! | `beta` | `[B, T, HV]` | write strength, in `[0, 1]`, or `[0, 2]` with negative eigenvalues |
//! | state | `[B, HV, K, V]` | the memory `S`, key-first |
//!
//! Value head `j` reads query and key head `j / (HV / H)`.
//!
//! Source: Kimi Linear, arXiv 2510.26692, equation 1.

#[cfg(feature = "kernels")]
mod autodiff;
#[cfg(feature = "flex")]
mod cpu;
#[cfg(feature = "cube")]
mod cube;
#[cfg(feature = "kernels")]
mod definition;
mod function;
mod gate;
mod inputs;
#[cfg(feature = "kernels")]
mod kernel;
mod options;
mod path;
mod plan;
mod primitive;
mod projections;
mod state;
pub(crate) mod state_file;
mod summary;
mod verify;

pub use function::kda;
pub use gate::{ForgetGate, kda_gate};
pub use options::KdaOptions;
pub use path::{KdaPath, NoKdaKernel};
pub use primitive::kda_reference;
pub use projections::{KdaGate, KdaProjections, kda_projected};
pub use state::KdaState;
pub(crate) use state::MEMORY_DTYPES;
pub use state_file::StateBytesError;
pub use summary::{KdaPart, KdaSummary, kda_context_parallel, kda_summary};
pub use verify::{KdaSnapshots, kda_verify, kda_verify_projected};
