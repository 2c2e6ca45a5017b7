/// Runs `work` on every task from 0 to `tasks`, each worker with a workspace of its own.
///
/// Which worker takes a task is left to chance; as tasks write to places of their own, results do not depend on it.
pub(super) fn for_each<W>(
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
        rayon::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|_| {
                    let mut workspace = workspace();
                    loop {
                        let task = next.fetch_add(1, Ordering::Relaxed);
                        if task >= tasks {
                            break;
                        }
                        work(&mut workspace, task);
                    }
                });
            }
        });
    }
}

/// How many tasks run at a time.
pub(super) fn workers() -> usize {
    #[cfg(feature = "rayon")]
    return rayon::current_num_threads();
    #[cfg(not(feature = "rayon"))]
    return 1;
}
