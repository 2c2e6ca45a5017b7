//! The border between a training loop and workers that may die.

use std::any::Any;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};

use super::pulse::Pulse;

/// Between two looks at what the workers answered.
const LOOK: Duration = Duration::from_millis(50);
/// For a worker that may have made the work fail to be found out.
const FINDING_OUT: Duration = Duration::from_secs(3);

/// Why the work of several workers ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkerError {
    /// A worker's process or connection is gone.
    #[error("worker {rank} ({worker}) died: {message}")]
    Died {
        /// Its rank.
        rank: usize,
        /// Its address or device.
        worker: String,
        /// What showed it.
        message: String,
    },
    /// A worker does not answer.
    #[error("worker {rank} ({worker}) has not answered for {seconds} s")]
    Silent {
        /// Its rank.
        rank: usize,
        /// Its address or device.
        worker: String,
        /// For how long.
        seconds: u64,
    },
    /// The work panicked, and all workers answer.
    #[error("the work of the workers panicked: {message}")]
    Panicked {
        /// What it said.
        message: String,
    },
}

/// A worker as a trainer knows it.
#[derive(Clone, Debug)]
pub struct Worker {
    device: Device,
    address: Option<SocketAddr>,
}

impl Worker {
    /// One of this process, which lives as long as the process.
    pub fn local(device: Device) -> Self {
        Self {
            device,
            address: None,
        }
    }

    /// One that serves this device of Burn's over WebSocket at `address`.
    pub fn remote(device: Device, address: SocketAddr) -> Self {
        Self {
            device,
            address: Some(address),
        }
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn name(&self) -> String {
        match self.address {
            Some(address) => address.to_string(),
            None => format!("{:?}", self.device),
        }
    }
}

/// Watches over several workers while they work.
///
/// A device whose process is gone panics in Burn wherever the training loop reads from it next, and one whose process has stopped is waited for without end.
/// [`supervise`](Self::supervise) runs a part of the loop on a thread of its own and ends with an error that names the worker: within moments if its process is
/// gone, or when it has not answered for [a time](Self::with_patience). The worker's server is asked, beside its work and not behind it, so long work is no reason
/// to give up.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Worker>,
    patience: Duration,
    /// Of those with an address.
    pulses: Vec<Option<Pulse>>,
}

impl Workers {
    /// Watches over these, by rank.
    pub fn new(workers: Vec<Worker>) -> Self {
        let pulses = workers
            .iter()
            .map(|worker| worker.address.map(Pulse::start));
        Self {
            pulses: pulses.collect(),
            workers,
            patience: Duration::from_secs(30),
        }
    }

    /// How long a worker may be silent. 30 seconds if it is not said.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The devices, by rank.
    pub fn devices(&self) -> Vec<Device> {
        let devices = self.workers.iter().map(|worker| worker.device.clone());
        devices.collect()
    }

    /// Runs `work` and has its result, unless a worker is gone first. Then the thread is left behind with what `work` owns: go on from a checkpoint.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn supervise<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, WorkerError> {
        let (sender, receiver) = sync_channel(1);
        thread::spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(work));
            // Nobody listens any more if a worker was given up.
            let _ = sender.send(result.map_err(|panic| message_of(&*panic)));
        });
        match self.wait(&receiver)? {
            Ok(result) => Ok(result),
            Err(message) => Err(self.blame(message)),
        }
    }

    /// What the thread sends, unless a worker is gone first.
    fn wait<T>(&self, receiver: &Receiver<T>) -> Result<T, WorkerError> {
        let start = Instant::now();
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => self.check(start)?,
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("the thread sends whatever happens")
                }
            }
        }
    }

    /// Whether all workers answer. That nobody asked before `start` is no silence.
    fn check(&self, start: Instant) -> Result<(), WorkerError> {
        for (rank, pulse) in self.pulses.iter().enumerate() {
            let Some(pulse) = pulse else { continue };
            let worker = || self.workers[rank].name();
            if let Some(message) = pulse.died() {
                return Err(WorkerError::Died {
                    rank,
                    worker: worker(),
                    message,
                });
            }
            let silence = pulse.last_answer().max(start).elapsed();
            if silence > self.patience {
                return Err(WorkerError::Silent {
                    rank,
                    worker: worker(),
                    seconds: silence.as_secs(),
                });
            }
        }
        Ok(())
    }

    /// Which worker made the work panic, if one did: its server is gone, or its device no longer computes.
    fn blame(&self, panic: String) -> WorkerError {
        let start = Instant::now();
        let answers: Vec<_> = self.workers.iter().map(asked).collect();
        let answered = |pulse: &Option<Pulse>| {
            pulse
                .as_ref()
                .is_none_or(|pulse| pulse.last_answer() > start)
        };
        while start.elapsed() < FINDING_OUT && !self.pulses.iter().all(answered) {
            if let Err(error) = self.check(start) {
                return error;
            }
            thread::sleep(LOOK);
        }
        for (rank, answer) in answers.into_iter().enumerate() {
            let left = FINDING_OUT.saturating_sub(start.elapsed());
            if let Ok(Err(message)) = answer.recv_timeout(left) {
                return WorkerError::Died {
                    rank,
                    worker: self.workers[rank].name(),
                    message,
                };
            }
        }
        WorkerError::Panicked { message: panic }
    }
}

/// The answer of a worker's device to its smallest operation, when it comes.
fn asked(worker: &Worker) -> Receiver<Result<(), String>> {
    let (sender, receiver) = sync_channel(1);
    let device = worker.device.clone().inner();
    thread::spawn(move || {
        let ask = || Tensor::<1>::ones([1], &device).try_into_data();
        let answer = match catch_unwind(AssertUnwindSafe(ask)) {
            Ok(answer) => answer.map(drop).map_err(|error| error.to_string()),
            Err(panic) => Err(message_of(&*panic)),
        };
        let _ = sender.send(answer);
    });
    receiver
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
