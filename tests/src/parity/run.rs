//! One run of the harness.

use std::any::Any;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use regex::Regex;

use super::case::Case;
use super::discover::case_folders;
use super::error::CaseError;
use super::kinds::Operator;
use super::report::Report;
use super::session::{Computed, Session};
use super::tensors::TensorFile;
use super::tolerance::{Comparison, Tolerance, compare};

/// What to check, and where to compute it.
#[derive(Debug)]
pub struct Parity {
    /// The device every case runs on, without autodiff.
    pub device: Device,
    /// Keeps only the checks whose tensor name matches.
    pub tensor: Option<Regex>,
    /// Case folders, or folders that hold some at any depth.
    pub folders: Vec<PathBuf>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every check passed, and there was at least one.
    Passed,
    /// Every case could be read; a check failed.
    Failed,
    /// A case could not be read, or nothing was checked.
    Unreadable,
}

impl Outcome {
    /// The exit status that reports this outcome: 0, 1 or 2.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed => 1,
            Self::Unreadable => 2,
        }
    }
}

impl Parity {
    /// Checks every case. Writes one line a check and the counts to `out`, and what could not be
    /// read to `errors`; one unreadable case does not keep the others from being checked.
    ///
    /// # Errors
    ///
    /// Only if `out` or `errors` cannot be written to.
    pub fn run(&self, out: &mut dyn Write, errors: &mut dyn Write) -> io::Result<Outcome> {
        let mut report = Report::new(out);
        let mut unreadable = 0_usize;
        for folder in self.folders.iter().flat_map(|root| case_folders(root)) {
            let checks = folder.and_then(|folder| self.check(&folder));
            match checks {
                Ok(Checks::Made { title, checks }) => {
                    for (tensor, comparison) in checks {
                        report.check(&title, &tensor, &comparison)?;
                    }
                }
                Ok(Checks::Impossible { title, reason }) => report.failed_case(&title, &reason)?,
                Err(error) => {
                    unreadable += 1;
                    writeln!(errors, "error: {error}")?;
                }
            }
        }
        report.summary()?;
        if report.passed() + report.failed() == 0 {
            match (&self.tensor, unreadable) {
                (Some(tensor), 0) => {
                    writeln!(
                        errors,
                        "error: nothing checked: no tensor matches `{tensor}`"
                    )?;
                }
                _ => writeln!(errors, "error: nothing checked")?,
            }
            return Ok(Outcome::Unreadable);
        }
        Ok(match (unreadable, report.failed()) {
            (0, 0) => Outcome::Passed,
            (0, _) => Outcome::Failed,
            _ => Outcome::Unreadable,
        })
    }

    /// Reads, computes and compares one case.
    fn check(&self, folder: &Path) -> Result<Checks, CaseError> {
        let case = Case::open(folder)?;
        let Some(operator) = case.kind.operator() else {
            let reason = format!("kind {} is not supported yet", case.kind);
            let title = case.title;
            return Ok(Checks::Impossible { title, reason });
        };
        let tensors = case.tensors()?;
        let expected = expected(&case, &tensors)?;
        // A crate that panics has failed this case; the others still get checked.
        let computed = catch_unwind(AssertUnwindSafe(|| self.compute(operator, &case, &tensors)));
        let computed = match computed {
            Ok(computed) => computed?,
            Err(panic) => {
                let reason = format!("panicked: {}", panic_message(&*panic));
                let title = case.title;
                return Ok(Checks::Impossible { title, reason });
            }
        };
        let mut checks = Vec::new();
        for (name, tolerance) in expected {
            if self.keeps(&name) {
                let comparison = worst(&name, &computed, &tensors, tolerance)?;
                checks.push((name, comparison));
            }
        }
        for extra in &computed {
            let known =
                tensors.contains(&extra.name) || checks.iter().any(|(name, _)| *name == extra.name);
            if let (false, true, Err(reason)) = (known, self.keeps(&extra.name), &extra.value) {
                let comparison = Comparison::without_error(0.0, reason.clone());
                checks.push((extra.name.clone(), comparison));
            }
        }
        let title = case.title;
        Ok(Checks::Made { title, checks })
    }

    /// Runs the case without autodiff, and once more with it if gradients are expected: the two
    /// may take different paths through a crate, and both must agree with the case.
    fn compute(
        &self,
        operator: Operator,
        case: &Case,
        tensors: &TensorFile,
    ) -> Result<Vec<Computed>, CaseError> {
        let mut devices = vec![self.device.clone()];
        if tensors.names_under("grad.").next().is_some() {
            devices.push(self.device.clone().autodiff());
        }
        let mut computed = Vec::new();
        for device in devices {
            let mut session = Session::new(tensors, device);
            operator(case, &mut session)?;
            computed.extend(session.finish()?);
        }
        Ok(computed)
    }

    fn keeps(&self, tensor: &str) -> bool {
        self.tensor
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(tensor))
    }
}

/// What came out of one readable case.
enum Checks {
    /// A comparison for every expected tensor.
    Made {
        title: String,
        checks: Vec<(String, Comparison)>,
    },
    /// The case could be read and not computed.
    Impossible { title: String, reason: String },
}

/// The tensors a case expects, outputs first, each with its tolerance.
fn expected(case: &Case, tensors: &TensorFile) -> Result<Vec<(String, Tolerance)>, CaseError> {
    let mut expected = Vec::new();
    for name in tensors
        .names_under("out.")
        .chain(tensors.names_under("grad."))
    {
        if let Some(input) = name.strip_prefix("grad.") {
            tensors.get(&format!("in.{input}"))?;
        }
        let tolerance = case.kind.tolerance(case, tensors, name)?;
        expected.push((name.to_owned(), tolerance));
    }
    Ok(expected)
}

/// The comparison of the run that agrees least.
fn worst(
    name: &str,
    computed: &[Computed],
    tensors: &TensorFile,
    tolerance: Tolerance,
) -> Result<Comparison, CaseError> {
    let want = tensors.get(name)?;
    let comparisons = computed.iter().filter(|computed| computed.name == name);
    let worst = comparisons
        .map(|computed| match &computed.value {
            Ok(got) => compare(got, want, tolerance),
            Err(reason) => Comparison::without_error(tolerance.shown(), reason.clone()),
        })
        .max_by(Comparison::by_severity);
    Ok(worst.unwrap_or_else(|| {
        let reason = format!("nothing computes a tensor `{name}` for this kind");
        Comparison::without_error(tolerance.shown(), reason)
    }))
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
