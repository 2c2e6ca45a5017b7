//! The lines of a run.

use std::io::{self, Write};

use super::tolerance::Comparison;

/// Prints checks as they are made and counts them.
pub(super) struct Report<'out> {
    out: &'out mut dyn Write,
    passed: usize,
    failed: usize,
}

impl<'out> Report<'out> {
    pub(super) fn new(out: &'out mut dyn Write) -> Self {
        Self {
            out,
            passed: 0,
            failed: 0,
        }
    }

    /// `ok|FAIL  kind/name  tensor  error  tolerance`, and after a failure its reason.
    pub(super) fn check(
        &mut self,
        title: &str,
        tensor: &str,
        comparison: &Comparison,
    ) -> io::Result<()> {
        let error = comparison
            .error
            .map_or_else(|| "-".to_owned(), |error| format!("{error:.3e}"));
        let numbers = format!("{tensor}  {error}  {:.3e}", comparison.tolerance);
        match &comparison.failure {
            None => {
                self.passed += 1;
                writeln!(self.out, "ok  {title}  {numbers}")
            }
            Some(reason) => {
                self.failed += 1;
                writeln!(self.out, "FAIL  {title}  {numbers}  {}", one_line(reason))
            }
        }
    }

    /// The one line of a case none of whose tensors could be checked.
    pub(super) fn failed_case(&mut self, title: &str, reason: &str) -> io::Result<()> {
        self.failed += 1;
        writeln!(self.out, "FAIL  {title}  -  -  -  {}", one_line(reason))
    }

    /// `N passed, N failed`.
    pub(super) fn summary(&mut self) -> io::Result<()> {
        writeln!(self.out, "{} passed, {} failed", self.passed, self.failed)?;
        self.out.flush()
    }

    pub(super) fn passed(&self) -> usize {
        self.passed
    }

    pub(super) fn failed(&self) -> usize {
        self.failed
    }
}

/// A panic message may have several lines; a check has one.
fn one_line(reason: &str) -> String {
    reason.split_whitespace().collect::<Vec<_>>().join(" ")
}
