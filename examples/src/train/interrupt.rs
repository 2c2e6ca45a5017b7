use std::io::Write;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit status of a program that was stopped by a signal: what shells report for Ctrl-C.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Whether somebody asked to stop. Training looks at it between two steps, sampling between two bytes.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens to Ctrl-C and to the request to terminate. The first one sets the flag, the second one ends the
    /// process at once.
    ///
    /// # Errors
    /// If the process already has a handler, or the system refuses one.
    pub fn listen() -> Result<Self, ctrlc::Error> {
        let interrupt = Self::default();
        let requested = interrupt.clone();
        ctrlc::set_handler(move || {
            if requested.0.swap(true, Ordering::SeqCst) {
                process::exit(EXIT_INTERRUPTED.into());
            }
            let _ = writeln!(
                std::io::stderr(),
                "\nstopping; press Ctrl-C again to stop at once and lose what is not saved yet"
            );
        })?;
        Ok(interrupt)
    }

    /// Whether somebody asked to stop.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
