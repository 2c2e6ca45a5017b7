//! Whether a server is there.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(500);
/// For an answer to one; without it the next is asked.
const ANSWER: Duration = Duration::from_secs(2);

/// Asks a server again and again whether it is there, until it is dropped.
///
/// It is asked for a page, in a connection of its own, and any answer will do: the sessions of devices are worked through in order, and an answer would
/// wait for all the work that was given before.
#[derive(Debug)]
pub(super) struct Pulse {
    heart: Arc<Mutex<Heart>>,
}

#[derive(Clone, Debug)]
struct Heart {
    last_answer: Instant,
    died: Option<String>,
}

impl Pulse {
    pub(super) fn start(address: SocketAddr) -> Self {
        let heart = Arc::new(Mutex::new(Heart {
            last_answer: Instant::now(),
            died: None,
        }));
        let watched = Arc::downgrade(&heart);
        thread::spawn(move || {
            loop {
                let answer = ask(address);
                let Some(heart) = watched.upgrade() else {
                    return;
                };
                match answer {
                    Ok(()) => lock(&heart).last_answer = Instant::now(),
                    Err(error) if is_silence(&error) => {}
                    Err(error) => {
                        lock(&heart).died = Some(error.to_string());
                        return;
                    }
                }
                drop(heart);
                thread::sleep(PAUSE);
            }
        });
        Self { heart }
    }

    pub(super) fn last_answer(&self) -> Instant {
        lock(&self.heart).last_answer
    }

    /// What showed that it is gone.
    pub(super) fn died(&self) -> Option<String> {
        lock(&self.heart).died.clone()
    }
}

fn ask(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let question = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes())?;
    stream.read_exact(&mut [0])
}

/// A stopped process neither answers nor refuses.
fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

fn lock(heart: &Mutex<Heart>) -> MutexGuard<'_, Heart> {
    // Each change of it is one assignment.
    heart.lock().unwrap_or_else(PoisonError::into_inner)
}
