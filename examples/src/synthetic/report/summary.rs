use crate::synthetic::runs::{RunProgress, RunState};

/// From which accuracy on a task counts as learned.
pub(super) const LEARNED: f64 = 0.9;

/// What the seeds of one arm on one task have shown together.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Number of trained values, if a run has begun.
    pub parameters: Option<usize>,
    /// Seeds in all.
    pub seeds: usize,
    /// Seeds that took all their steps.
    pub finished: usize,
    /// Seeds whose loss stopped being finite.
    pub diverged: usize,
    /// The last accuracies of the finished seeds, if there are any.
    pub accuracy: Option<Spread>,
    /// The first evaluation with at least 90 %, averaged over the seeds, if every seed is finished and got there.
    pub learned_at: Option<f64>,
}

/// Mean, least and greatest of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        (count > 0).then(|| Self {
            mean: values.iter().sum::<f64>() / count as f64,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

impl Summary {
    pub(super) fn new<'a>(
        parameters: Option<usize>,
        seeds: impl Iterator<Item = &'a RunProgress>,
        steps: usize,
    ) -> Self {
        let seeds: Vec<&RunProgress> = seeds.collect();
        let mut accuracies = Vec::new();
        let mut learned = Vec::new();
        let mut diverged = 0;
        for seed in &seeds {
            match seed.state(steps) {
                RunState::Finished { accuracy } => {
                    accuracies.push(accuracy);
                    learned.extend(first_learned(seed));
                }
                RunState::Diverged { .. } => diverged += 1,
                RunState::Missing | RunState::Unfinished { .. } => {}
            }
        }
        let all_learned = learned.len() == seeds.len();
        Self {
            parameters,
            seeds: seeds.len(),
            finished: accuracies.len(),
            diverged,
            accuracy: Spread::of(&accuracies),
            learned_at: Spread::of(&learned)
                .filter(|_| all_learned)
                .map(|steps| steps.mean),
        }
    }
}

fn first_learned(seed: &RunProgress) -> Option<f64> {
    let first = seed.curve.iter().find(|point| point.accuracy >= LEARNED);
    first.map(|point| point.step as f64)
}
