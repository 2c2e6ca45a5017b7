//! Tasks over the threads of Burn's CPU backend.

/// Runs `work` on every task from 0 to `tasks`, each worker with a workspace of its own.
///
/// Which worker takes a task is left to chance; as tasks write to places of their own, results do not depend on it.
pub fn for_each<W>(
    tasks: usize,
    workspace: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, usize) + Sync,
) {
    let workers = workers().min(tasks);
    if workers <= 1 {
        let mut workspace = workspace();
        (0..tasks).for_each(|task| work(&mut workspace, task));
        return;
    }
    #[cfg(feature = "rayon")]
    {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let next = AtomicUsize::new(0);
        let drain = || {
            let mut own = None;
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    break;
                }
                work(own.get_or_insert_with(&workspace), task);
            }
        };
        // The calling thread is one of the workers, and looks for the others' end for a while before it sleeps: waking a thread takes about as long as
        // a decode step. Between looks it gives way, for a worker may have been put behind it on the same core.
        let running = AtomicUsize::new(workers - 1);
        rayon::in_place_scope(|scope| {
            for _ in 1..workers {
                scope.spawn(|_| {
                    drain();
                    running.fetch_sub(1, Ordering::Release);
                });
            }
            drain();
            for _ in 0..PATIENCE {
                if running.load(Ordering::Acquire) == 0 {
                    break;
                }
                std::thread::yield_now();
            }
        });
    }
}

/// Looks before sleeping, of half a microsecond or so where nobody else wants the core.
#[cfg(feature = "rayon")]
const PATIENCE: usize = 100;

/// How many tasks run at a time.
pub fn workers() -> usize {
    #[cfg(feature = "rayon")]
    return rayon::current_num_threads();
    #[cfg(not(feature = "rayon"))]
    return 1;
}
