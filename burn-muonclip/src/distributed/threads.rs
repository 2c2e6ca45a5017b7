//! Work of several members at the same time.

use std::panic::resume_unwind;
use std::thread;

/// Runs the jobs on a thread each, and has their results in order. A panic goes on in the caller.
pub(super) fn beside_each_other<J: Send, R: Send>(
    jobs: impl Iterator<Item = J>,
    work: impl Fn(J) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = jobs.map(|job| scope.spawn(move || work(job))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}
