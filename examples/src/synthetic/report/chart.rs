use std::error::Error;
use std::path::Path;

use plotters::coord::types::{RangedCoordf64, RangedCoordusize};
use plotters::prelude::*;

use crate::synthetic::runs::Point;
use crate::synthetic::{Arm, TaskKind};
use crate::train::{TrainError, write_atomically};

const SIZE: (u32, u32) = (960, 560);
const FONT: &str = "sans-serif";

/// The curves of one arm on one task, one for every seed that has been evaluated.
pub(super) struct ArmCurves {
    pub(super) arm: Arm,
    pub(super) seeds: Vec<Vec<Point>>,
}

/// Draws accuracy over steps: the seeds thin, their mean thick. Writes nothing if nothing was measured.
pub(super) fn draw(path: &Path, task: TaskKind, arms: &[ArmCurves]) -> Result<(), TrainError> {
    if arms.is_empty() {
        return Ok(());
    }
    let svg = render(task, arms).map_err(|error| TrainError::malformed(path, error))?;
    write_atomically(path, svg.as_bytes())
}

type AccuracyChart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordusize, RangedCoordf64>>;

fn render(task: TaskKind, arms: &[ArmCurves]) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let title = format!("{}: held-out answers that are right", task.name());
        let mut chart = ChartBuilder::on(&area)
            .caption(title, (FONT, 20))
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(0..last_step(arms), 0.0..102.0)?;
        chart
            .configure_mesh()
            .x_desc("step")
            .y_desc("accuracy (%)")
            .axis_desc_style((FONT, 16))
            .label_style((FONT, 13))
            .y_label_formatter(&|percent| format!("{percent:.0}"))
            .light_line_style(RGBColor(238, 238, 238))
            .bold_line_style(RGBColor(214, 214, 214))
            .draw()?;
        for curves in arms {
            draw_arm(&mut chart, curves)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(160, 160, 160))
            .label_font((FONT, 14))
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}

fn draw_arm(chart: &mut AccuracyChart, curves: &ArmCurves) -> Result<(), Box<dyn Error>> {
    let colour = colour(curves.arm);
    for seed in &curves.seeds {
        let points = seed
            .iter()
            .map(|point| (point.step, 100.0 * point.accuracy));
        let thin = colour.mix(0.35).stroke_width(1);
        chart.draw_series(LineSeries::new(points, thin))?;
    }
    let mean = mean_curve(&curves.seeds);
    let last = mean.last().map_or(0.0, |&(_, percent)| percent);
    let label = format!("{} ({last:.1} %)", curves.arm.name());
    let thick = colour.stroke_width(2);
    chart
        .draw_series(LineSeries::new(mean, thick))?
        .label(label)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], thick));
    Ok(())
}

/// Mean accuracy in percent, as far as all seeds have come that have begun.
fn mean_curve(seeds: &[Vec<Point>]) -> Vec<(usize, f64)> {
    let shortest = seeds.iter().map(Vec::len).min().unwrap_or(0);
    let mean_at = |index: usize| {
        let sum: f64 = seeds.iter().map(|seed| seed[index].accuracy).sum();
        (seeds[0][index].step, 100.0 * sum / seeds.len() as f64)
    };
    (0..shortest).map(mean_at).collect()
}

fn last_step(arms: &[ArmCurves]) -> usize {
    let points = arms.iter().flat_map(|curves| curves.seeds.iter().flatten());
    points.map(|point| point.step).max().unwrap_or(0).max(1)
}

/// An arm has the same colour in every chart, whichever other arms are drawn.
fn colour(arm: Arm) -> RGBColor {
    match arm {
        Arm::Kda => RGBColor(31, 119, 180),
        Arm::ScalarGate => RGBColor(214, 39, 40),
        Arm::NoDelta => RGBColor(44, 160, 44),
        Arm::Softmax => RGBColor(148, 103, 189),
    }
}
