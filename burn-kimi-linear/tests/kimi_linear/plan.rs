use burn_kimi_linear::{AttentionKind, AttentionPlan};

fn latent_layers(plan: AttentionPlan, layers: usize) -> Vec<usize> {
    (0..layers)
        .filter(|l| plan.kind(*l) == AttentionKind::Mla)
        .collect()
}

#[test]
fn kimi_linear_has_every_fourth_layer_latent() {
    assert_eq!(latent_layers(AttentionPlan::KIMI_LINEAR, 12), [3, 7, 11]);
    assert_eq!(AttentionPlan::default(), AttentionPlan::KIMI_LINEAR);
}

#[test]
fn other_plans() {
    assert_eq!(latent_layers(AttentionPlan::Mla, 3), [0, 1, 2]);
    assert!(latent_layers(AttentionPlan::Kda, 9).is_empty());
    assert_eq!(
        latent_layers(AttentionPlan::Hybrid { kda_per_mla: 1 }, 5),
        [1, 3]
    );
}

#[test]
fn plans_read_what_they_write() {
    let plans = [
        ("mla", AttentionPlan::Mla),
        ("kda", AttentionPlan::Kda),
        ("hybrid", AttentionPlan::KIMI_LINEAR),
        ("hybrid:7", AttentionPlan::Hybrid { kda_per_mla: 7 }),
    ];
    for (text, plan) in plans {
        assert_eq!(plan.to_string(), text);
        assert_eq!(text.parse(), Ok(plan));
    }
}

#[test]
fn other_texts_are_refused_by_name() {
    for text in [
        "",
        "MLA",
        "hybrid:",
        "hybrid:0",
        "hybrid:x",
        "hybrid:-1",
        "gqa",
    ] {
        let error = text.parse::<AttentionPlan>().unwrap_err();
        assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
    }
}
