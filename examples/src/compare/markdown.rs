use std::fmt::Write;

use super::report::mean;
use super::{Arm, Report, RunState};
use crate::train::OptimizerKind;

impl Report {
    /// The table in Markdown, the best arms, the gap, and what is missing.
    pub fn to_markdown(&self) -> String {
        let mut page = String::from("# MuonClip against AdamW\n\n");
        page.push_str(&self.conditions());
        page.push_str("\n| optimizer | learning rate |");
        for seed in &self.plan.seeds {
            let _ = write!(page, " seed {seed} |");
        }
        page.push_str(" mean |\n|---|---|");
        page.push_str(&"---|".repeat(self.plan.seeds.len() + 1));
        page.push('\n');
        for &arm in &self.plan.arms {
            let _ = write!(page, "| {} | {} |", arm.optimizer.name(), arm.lr);
            for (_, state, _) in self.results.iter().filter(|(run, ..)| run.arm == arm) {
                let _ = write!(page, " {} |", describe(*state));
            }
            let mean = self
                .losses(arm)
                .map_or("-".to_owned(), |losses| format!("{:.4}", mean(&losses)));
            let _ = writeln!(page, " {mean} |");
        }
        page.push_str(&self.conclusion());
        page
    }

    fn conditions(&self) -> String {
        let (model, train) = (&self.plan.settings.model, &self.plan.settings.train);
        let mut page = format!(
            "Validation loss in nats per byte after {} steps of {} x {} tokens, weight decay {}; --layers {} \
             --hidden {} --heads {} --ffn {} --attention {} --residual {}.\n",
            train.steps,
            train.batch,
            train.seq_len,
            train.weight_decay,
            model.layers,
            model.hidden,
            model.heads,
            model.ffn,
            model.attention,
            model.residual,
        );
        if let Some(text) = &self.text {
            let _ = writeln!(
                page,
                "Text: {} ({} files, {} bytes, sha256 {}); {} validation tokens, on which a bigram table has {:.4}.",
                text.name,
                text.files,
                text.bytes,
                text.sha256,
                text.validation_tokens,
                text.bigram_loss
            );
        }
        page
    }

    fn conclusion(&self) -> String {
        let mut text = String::new();
        for optimizer in [OptimizerKind::MuonClip, OptimizerKind::AdamW] {
            let _ = match self.best_arm(optimizer) {
                Some((arm, mean)) => write!(
                    text,
                    "\nBest {}: lr {}, {mean:.4} ({}).",
                    optimizer.name(),
                    arm.lr,
                    self.place_among_tried(arm)
                ),
                None => write!(text, "\nBest {}: no arm is finished yet.", optimizer.name()),
            };
        }
        if let Some(gaps) = self.gaps() {
            let each: Vec<String> = gaps.iter().map(|gap| format!("{gap:+.4}")).collect();
            let _ = write!(
                text,
                "\nGap (AdamW minus MuonClip): {:+.4} nats per byte; by seed {}.",
                mean(&gaps),
                each.join(", ")
            );
        }
        let missing: Vec<String> = self
            .results
            .iter()
            .filter(|(_, state, _)| {
                matches!(state, RunState::Missing | RunState::Unfinished { .. })
            })
            .map(|(run, ..)| run.to_string())
            .collect();
        if !missing.is_empty() {
            let _ = write!(text, "\nMissing: {}.", missing.join(", "));
        }
        text.push('\n');
        text
    }

    /// A best rate at the end of its list may have a better one beyond it.
    fn place_among_tried(&self, arm: Arm) -> String {
        let same = |tried: &&Arm| tried.optimizer == arm.optimizer;
        let tried: Vec<f64> = self
            .plan
            .arms
            .iter()
            .filter(same)
            .map(|tried| tried.lr)
            .collect();
        let is_inside = tried.iter().any(|&lr| lr < arm.lr) && tried.iter().any(|&lr| lr > arm.lr);
        match tried.len() {
            1 => "the only one tried".to_owned(),
            count if is_inside => format!("best of {count}"),
            count => format!("best of {count}, at the end of the list"),
        }
    }
}

fn describe(state: RunState) -> String {
    match state {
        RunState::Missing => "missing".to_owned(),
        RunState::Unfinished { step } => format!("at step {step}"),
        RunState::Diverged { step } => format!("diverged at step {step}"),
        RunState::Finished { validation_loss } => format!("{validation_loss:.4}"),
    }
}
