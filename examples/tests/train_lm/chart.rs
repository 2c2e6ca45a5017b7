use std::fs;

use examples::chart::{Curve, draw};
use examples::logit_chart;
use examples::train::{HeadLogit, MetricsLine};
use quick_xml::Reader;
use quick_xml::events::Event;
use tempfile::TempDir;

fn curve(label: &str, offset: f64) -> Curve {
    Curve {
        label: label.to_owned(),
        train: (1..=40)
            .map(|step| (step, offset + 5.0 / step as f64))
            .collect(),
        validation: (1..=4)
            .map(|index| (index * 10, offset + 1.0 / index as f64))
            .collect(),
    }
}

struct Svg {
    texts: Vec<String>,
    polylines: usize,
    circles: usize,
}

/// Parses the file, which must be well-formed XML with one `svg` element around everything.
fn parse(svg: &str) -> Svg {
    let mut reader = Reader::from_str(svg);
    let mut found = Svg {
        texts: Vec::new(),
        polylines: 0,
        circles: 0,
    };
    let mut open = Vec::new();
    loop {
        match reader.read_event().expect("well-formed XML") {
            Event::Start(element) => {
                found.count(element.name().as_ref());
                open.push(element.name().as_ref().to_owned());
            }
            Event::Empty(element) => found.count(element.name().as_ref()),
            Event::End(element) => {
                assert_eq!(open.pop().as_deref(), Some(element.name().as_ref()));
            }
            Event::Text(text) => {
                let text = text.trim().to_owned();
                if !text.is_empty() {
                    assert_eq!(open.first().map(String::as_str), Some("svg"));
                    found.texts.push(text);
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert!(open.is_empty());
    found
}

impl Svg {
    fn count(&mut self, name: &str) {
        match name {
            "polyline" => self.polylines += 1,
            "circle" => self.circles += 1,
            _ => {}
        }
    }

    fn says(&self, text: &str) -> bool {
        self.texts.iter().any(|found| found.contains(text))
    }
}

#[test]
fn has_axes_legend_and_both_curves_of_both_optimizers() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("loss.svg");
    draw(
        &path,
        "a < b & c",
        &[curve("muonclip", 1.0), curve("adamw", 1.5)],
        2.5,
    )
    .expect("a chart");
    let svg = parse(&fs::read_to_string(&path).expect("a file"));
    for text in [
        "step",
        "loss (nats per byte)",
        "muonclip, train",
        "muonclip, validation (1.250)",
        "adamw, train",
        "adamw, validation (1.750)",
        "bigram table, validation (2.500)",
    ] {
        assert!(svg.says(text), "{text} is missing in {:?}", svg.texts);
    }
    // Tick labels of both axes.
    assert!(svg.says("40") && svg.says("2.0"), "{:?}", svg.texts);
    assert_eq!(svg.circles, 8);
    // Five curves (the bigram's line among them) and their five legend lines.
    assert!(svg.polylines >= 10, "{}", svg.polylines);
}

/// Steps of two heads, of which one is clipped at step 3.
fn watched() -> Vec<MetricsLine> {
    let head = |step: usize, head: usize| HeadLogit {
        layer: "layers.3.self_attn".to_owned(),
        head,
        logit: (step != 2).then_some(10.0 * (step * (head + 1)) as f32),
        clipped: head == 1 && step == 3,
    };
    let line = |step| MetricsLine {
        step,
        tokens: step,
        lr: 0.1,
        train_loss: Some(1.0),
        validation_loss: None,
        skipped: false,
        heads: vec![head(step, 0), head(step, 1)],
        ever_clipped: Some(0.5),
        seconds: 0.0,
    };
    (1..=4).map(line).collect()
}

#[test]
fn logits_have_a_curve_for_every_head_and_a_mark_where_one_is_clipped() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("logits.svg");
    logit_chart::draw(&path, &watched(), 50.0).expect("a chart");
    let svg = parse(&fs::read_to_string(&path).expect("a file"));
    for text in [
        "step",
        "logit",
        "threshold (50)",
        "layers.3.self_attn, head 0 (clipped 0 times)",
        "layers.3.self_attn, head 1 (clipped 1 times)",
    ] {
        assert!(svg.says(text), "{text} is missing in {:?}", svg.texts);
    }
    assert_eq!(svg.circles, 1);
}

#[test]
fn without_watched_heads_there_is_no_chart_of_them() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("logits.svg");
    logit_chart::draw(&path, &[], 50.0).expect("nothing to draw");
    assert!(!path.exists());
}

#[test]
fn few_points_are_no_trouble() {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("loss.svg");
    let single = Curve {
        label: "x".to_owned(),
        train: vec![(1, 2.0)],
        validation: vec![(1, 2.0)],
    };
    let none = Curve {
        label: "y".to_owned(),
        train: vec![],
        validation: vec![],
    };
    for curves in [
        &[][..],
        std::slice::from_ref(&none),
        &[single, none.clone()],
    ] {
        draw(&path, "few", curves, 2.0).expect("a chart");
        parse(&fs::read_to_string(&path).expect("a file"));
    }
}
