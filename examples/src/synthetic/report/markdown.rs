use std::fmt::Write;

use super::summary::LEARNED;
use super::{Report, Summary};
use crate::synthetic::runs::RunState;
use crate::synthetic::{Arm, TaskKind};

impl Report {
    /// The tables in Markdown, what they say about the gate, and what is missing.
    pub fn to_markdown(&self) -> String {
        let mut page = String::from("# Token mixers on synthetic tasks\n\n");
        page.push_str(&self.conditions());
        for &task in &self.plan.tasks {
            let _ = write!(
                page,
                "\n## {}\n\n{}\n\n| arm | parameters | seeds | accuracy | least | most | {:.0} % at step |\n\
                 |---|---|---|---|---|---|---|\n",
                task.name(),
                self.description(task),
                100.0 * LEARNED
            );
            for &arm in &self.plan.arms {
                page.push_str(&row(arm, &self.summary(task, arm)));
            }
            page.push_str(&self.gate_line(task));
        }
        page.push_str(&self.missing_line());
        page
    }

    fn conditions(&self) -> String {
        let (model, training) = (&self.plan.settings.model, &self.plan.settings.training);
        format!(
            "Accuracy on the answers of {} held-out sequences after {} steps of {} sequences: AdamW, learning rate {}, \
             weight decay {}; {} layers of width {}, {} heads of {}, feed-forward {}.\n",
            training.eval_sequences,
            training.steps,
            training.batch,
            training.lr,
            training.weight_decay,
            model.layers,
            model.hidden,
            model.heads,
            model.head_dim,
            model.ffn,
        )
    }

    fn description(&self, task: TaskKind) -> String {
        let sizes = &self.plan.settings.tasks;
        let (length, vocabulary) = (task.length(sizes), task.vocabulary(sizes));
        let what = match task {
            TaskKind::Palindrome => format!("{} tokens in reverse", sizes.reversed),
            TaskKind::Mqar => format!("the values of {} keys", sizes.pairs),
            TaskKind::Stack => format!(
                "what comes off {} stacks in {} operations",
                sizes.stacks, sizes.operations
            ),
        };
        let symbols = sizes.symbols;
        format!(
            "Answers: {what}. Sequences of {length} tokens, vocabulary {vocabulary}; a guess among the {symbols} symbols is right \
             in {:.1} % of the cases.",
            100.0 / symbols as f64
        )
    }

    /// What is expected of the gate of KDA, and whether it is so.
    fn gate_line(&self, task: TaskKind) -> String {
        let mean = |arm| {
            self.summary(task, arm)
                .accuracy
                .map(|accuracy| accuracy.mean)
        };
        let (Some(kda), Some(scalar)) = (mean(Arm::Kda), mean(Arm::ScalarGate)) else {
            return String::new();
        };
        format!(
            "\nA decay per channel {} a decay per head: {} against {}.\n",
            if kda >= scalar {
                "is at least as good as"
            } else {
                "is worse than"
            },
            percent(kda),
            percent(scalar)
        )
    }

    fn missing_line(&self) -> String {
        let describe = |(run, state)| match state {
            RunState::Unfinished { step } => format!("{run} (at step {step})"),
            _ => format!("{run}"),
        };
        let missing: Vec<String> = self.missing().into_iter().map(describe).collect();
        match missing.is_empty() {
            true => String::new(),
            false => format!("\nMissing: {}.\n", missing.join(", ")),
        }
    }
}

fn row(arm: Arm, summary: &Summary) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let accuracy = summary.accuracy;
    let mut seeds = format!("{} of {}", summary.finished, summary.seeds);
    if summary.diverged > 0 {
        let _ = write!(seeds, ", {} diverged", summary.diverged);
    }
    format!(
        "| {} | {} | {seeds} | {} | {} | {} | {} |\n",
        arm.name(),
        or_dash(summary.parameters.map(|count| count.to_string())),
        or_dash(accuracy.map(|spread| percent(spread.mean))),
        or_dash(accuracy.map(|spread| percent(spread.min))),
        or_dash(accuracy.map(|spread| percent(spread.max))),
        or_dash(summary.learned_at.map(|step| format!("{step:.0}"))),
    )
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
