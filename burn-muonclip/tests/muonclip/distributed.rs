//! The optimizer over several workers against one that adds up the same gradients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::nn::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{Device, Distribution, Tensor};
use burn_muonclip::distributed::{Collective, Worker, WorkerError, Workers};
use burn_muonclip::qk_clip::{AttentionInput, LogitRecorder, QkClipConfig, QkLayer, attend};
use burn_muonclip::{MuonClip, MuonClipConfig, StepOutcome};

use crate::models::{
    Mixed, MixtureOfExperts, Tied, bits, made_up_gradients, seeded, snapshot, training_device,
};

const WORKERS: [usize; 4] = [1, 2, 3, 4];

fn devices(workers: usize) -> Vec<Device> {
    vec![training_device(); workers]
}

/// What the workers found in a step, by rank.
fn gradients<M: Module>(model: &M, step: u64, workers: usize) -> Vec<GradientsParams> {
    let ranks = 0..workers as u64;
    ranks
        .map(|rank| made_up_gradients(model, 10 * step + rank, 0.5 + rank as f64))
        .collect()
}

/// The same gradients one after the other.
fn accumulated<M: Module>(model: &M, grads: Vec<GradientsParams>) -> GradientsParams {
    let mut accumulator = GradientsAccumulator::new();
    for grads in grads {
        accumulator.accumulate(model, grads);
    }
    accumulator.grads()
}

fn optimizers() -> Vec<MuonClipConfig> {
    vec![
        MuonClipConfig::new(),
        // A norm that all gradients exceed.
        MuonClipConfig::new().with_max_grad_norm(Some(1e-3)),
    ]
}

fn check_as_one_worker<M: Module>(model: &M) {
    for config in optimizers() {
        for workers in WORKERS {
            let mut single = config.init_fused(model);
            let mut shared = config.init_fused(model).distributed(devices(workers));
            let mut one = model.clone();
            let mut replicas = vec![model.clone(); workers];
            for step in 0..3 {
                let grads = accumulated(&one, gradients(&one, step, workers));
                one = single.step(0.02, one, grads);
                let grads = gradients(&replicas[0], step, workers);
                replicas = shared.step(0.02, replicas, grads);
                for (rank, replica) in replicas.iter().enumerate() {
                    assert!(
                        snapshot(replica) == snapshot(&one),
                        "step {step}, worker {rank} of {workers}"
                    );
                }
            }
            let (one, all) = (single.last_report().unwrap(), shared.last_report().unwrap());
            assert_eq!(one.muon_matrices, all.muon_matrices);
            assert_eq!(one.adamw_parameters, all.adamw_parameters);
            assert_eq!(one.grad_norm, all.grad_norm);
            assert_eq!(
                single.state_bytes(),
                shared.state_bytes().iter().sum::<usize>()
            );
        }
    }
}

#[test]
fn a_step_has_the_bits_of_one_worker_that_adds_up_in_order() {
    check_as_one_worker(&seeded(Mixed::new(&training_device())));
    check_as_one_worker(&seeded(MixtureOfExperts::new(&training_device())));
    let mut tied = seeded(Tied::new(&training_device()));
    tied.second = tied.first.clone();
    check_as_one_worker(&tied);
}

#[test]
fn shared_parameters_stay_one_in_every_replica() {
    let device = training_device();
    let mut tied = seeded(Tied::new(&device));
    tied.second = tied.first.clone();
    let mut optimizer = MuonClipConfig::new()
        .init_fused(&tied)
        .distributed(devices(3));
    let grads = gradients(&tied, 0, 3);
    let replicas = optimizer.step(0.02, vec![tied; 3], grads);
    let x = Tensor::<2>::random([4, 6], Distribution::Default, &device);
    for replica in replicas {
        let loss = replica.forward(x.clone()).square().mean();
        let grads = GradientsParams::from_grads(loss.backward(), &replica);
        // Were they two tensors, each would have a gradient of its own use alone.
        let of_both = grads.get::<2>(replica.first.weight.id).unwrap();
        let mut apart = replica.clone();
        apart.second.weight = burn::module::Param::initialized(
            burn::module::ParamId::new(),
            replica.second.weight.val().detach().require_grad(),
        );
        let loss = apart.forward(x.clone()).square().mean();
        let grads = GradientsParams::from_grads(loss.backward(), &apart);
        let sum = grads.get::<2>(apart.first.weight.id).unwrap()
            + grads.get::<2>(apart.second.weight.id).unwrap();
        let error = (of_both - sum).abs().max().into_scalar::<f32>();
        assert!(error < 1e-5, "{error}");
    }
}

/// Eight matrices of one shape and eight biases, as layers of a model are.
#[derive(Module, Debug)]
struct Layers {
    layers: Vec<Linear>,
}

fn layers() -> Layers {
    let device = training_device();
    let layer = |_| LinearConfig::new(16, 16).init(&device);
    seeded(Layers {
        layers: (0..8).map(layer).collect(),
    })
}

#[test]
fn each_owner_holds_its_part_of_the_state_and_sends_what_theory_says() {
    let model = layers();
    let parameters = model.num_params();
    for workers in WORKERS {
        let mut optimizer = MuonClipConfig::new()
            .init_fused(&model)
            .distributed(devices(workers));
        let grads = gradients(&model, 0, workers);
        optimizer.step(0.02, vec![model.clone(); workers], grads);

        let held = optimizer.state_bytes();
        let owned = optimizer.owners().shares().iter();
        assert_eq!(
            held,
            owned.map(|share| share.state_bytes).collect::<Vec<_>>()
        );
        // Eight matrices cannot be shared out evenly among three.
        let most = 8usize.div_ceil(workers) as f64 / 8.0;
        let all: usize = held.iter().sum();
        for (rank, held) in held.iter().enumerate() {
            let share = *held as f64 / all as f64;
            println!("worker {rank} of {workers}: {held} bytes, {share:.3} of all");
            assert!(share <= most + 0.01, "worker {rank} of {workers}: {share}");
        }
        // An all-reduce in a ring moves as much for AdamW.
        let moved = optimizer.collective().bytes_moved();
        assert_eq!(moved as usize, 8 * (workers - 1) * parameters);
    }
}

#[test]
fn what_costs_most_is_shared_out_first_and_always_alike() {
    let device = training_device();
    let wide = |n, m| LinearConfig::new(n, m).with_bias(false).init(&device);
    let model = Layers {
        layers: vec![wide(8, 8), wide(64, 64), wide(8, 16), wide(64, 64)],
    };
    let optimizer = MuonClipConfig::new()
        .init_fused(&model)
        .distributed(devices(2));
    let owners = optimizer.owners();
    let of = |layer| owners.of(&format!("layers.{layer}.weight"));
    assert_eq!((of(1), of(3)), (Some(0), Some(1)));
    assert_ne!(of(0), of(2));
    assert_eq!(owners.of("layers.4.weight"), None);
    let again = MuonClipConfig::new()
        .init_fused(&model)
        .distributed(devices(2));
    assert_eq!(again.owners(), owners);
    let flops: Vec<_> = owners
        .shares()
        .iter()
        .map(|share| share.newton_schulz_flops)
        .collect();
    assert_eq!(
        flops.iter().sum::<usize>(),
        2 * 6 * 64usize.pow(3) + 6 * 8usize.pow(3) + 4 * 64 * 16 + 2 * 512
    );
}

#[test]
fn saved_on_four_it_goes_on_with_two_and_with_one() {
    let model = seeded(Mixed::new(&training_device()));
    let config = MuonClipConfig::new();
    let mut four = config.init_fused(&model).distributed(devices(4));
    let mut replicas = vec![model.clone(); 4];
    for step in 0..2 {
        let grads = gradients(&model, step, 4);
        replicas = four.step(0.02, replicas, grads);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("optimizer");
    four.to_single().save(&file).unwrap();
    let one = replicas.swap_remove(0);

    let load = || -> MuonClip { config.init_fused(&one).load(&file).unwrap() };
    let (mut two, mut alone) = (load().distributed(devices(2)), load());
    let mut pair = vec![one.clone(); 2];
    let mut single = one;
    for step in 2..4 {
        let grads = gradients(&single, step, 2);
        single = alone.step(0.02, single.clone(), accumulated(&single, grads));
        let grads = gradients(&pair[0], step, 2);
        pair = two.step(0.02, pair, grads);
        assert!(
            pair.iter()
                .all(|replica| snapshot(replica) == snapshot(&single))
        );
    }
    assert_eq!(
        two.to_single().into_bytes().unwrap(),
        alone.into_bytes().unwrap()
    );
}

#[test]
fn a_bad_gradient_of_one_worker_stops_the_step_of_all() {
    let model = seeded(Mixed::new(&training_device()));
    let mut optimizer = MuonClipConfig::new()
        .init_fused(&model)
        .distributed(devices(3));
    let mut grads = gradients(&model, 0, 3);
    let id = model.head.weight.id;
    let bad: Tensor<2> = grads[1].remove(id).unwrap();
    grads[1].register(id, bad.mul_scalar(f32::NAN));
    let replicas = optimizer.step(0.02, vec![model.clone(); 3], grads);
    assert!(
        replicas
            .iter()
            .all(|replica| snapshot(replica) == snapshot(&model))
    );
    assert_eq!(optimizer.state_bytes(), [0; 3]);
    assert_eq!(
        optimizer.last_report().unwrap().outcome,
        StepOutcome::SkippedNonFinite {
            paths: vec!["head.weight".to_owned()]
        }
    );
}

#[test]
fn a_parameter_that_one_worker_did_not_use_is_updated_by_the_others() {
    let model = seeded(Mixed::new(&training_device()));
    let config = MuonClipConfig::new();
    let mut optimizer = config.init_fused(&model).distributed(devices(2));
    let without = |mut grads: Vec<GradientsParams>| {
        grads[0].remove::<2>(model.head.weight.id);
        grads
    };
    let replicas = optimizer.step(
        0.02,
        vec![model.clone(); 2],
        without(gradients(&model, 0, 2)),
    );
    let grads = accumulated(&model, without(gradients(&model, 0, 2)));
    let one = config.init_fused(&model).step(0.02, model.clone(), grads);
    assert_ne!(bits(&one.head.weight.val()), bits(&model.head.weight.val()));
    assert!(
        replicas
            .iter()
            .all(|replica| snapshot(replica) == snapshot(&one))
    );
}

#[test]
fn logits_are_clipped_by_the_largest_of_all_workers() {
    let device = training_device();
    let model: MultiHeadAttention = MultiHeadAttentionConfig::new(16, 4)
        .with_dropout(0.0)
        .init(&device);
    let optimizer = |recorder: &LogitRecorder| {
        let layers = vec![QkLayer::multi_head("attention", &model)];
        let clip = QkClipConfig::new().with_threshold(1.0);
        let clip = clip.init(&model, layers, recorder.clone()).unwrap();
        MuonClipConfig::new().init_fused(&model).with_qk_clip(clip)
    };
    // The last worker has the largest logits.
    let batches: Vec<_> = [1.0, 2.0, 8.0]
        .map(|scale| Tensor::<3>::random([1, 7, 16], Distribution::Normal(0.0, scale), &device))
        .into();
    let backward = |replica: &MultiHeadAttention, x: &Tensor<3>, recorder: &LogitRecorder| {
        let input = AttentionInput::self_attn(x.clone());
        let loss = attend(replica, input, recorder, None)
            .context
            .square()
            .mean();
        GradientsParams::from_grads(loss.backward(), replica)
    };

    let recorder = LogitRecorder::new();
    let mut single = optimizer(&recorder);
    let grads = batches
        .iter()
        .map(|x| backward(&model, x, &recorder))
        .collect();
    let one = single.step(0.02, model.clone(), accumulated(&model, grads));

    let recorder = LogitRecorder::new();
    let mut shared = optimizer(&recorder).distributed(devices(3));
    let replicas = vec![model.clone(); 3];
    let grads = thread::scope(|scope| {
        let ranks = replicas.iter().zip(&batches);
        let workers: Vec<_> = ranks
            .map(|(replica, x)| scope.spawn(|| backward(replica, x, &recorder)))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    let replicas = shared.step(0.02, replicas, grads);
    assert!(
        replicas
            .iter()
            .all(|replica| snapshot(replica) == snapshot(&one))
    );
    let reports =
        [single.qk_clip(), shared.qk_clip()].map(|clip| clip.unwrap().last_report().unwrap());
    assert!(reports[0].clipped() > 0);
    assert_eq!(reports[0].layers, reports[1].layers);
}

#[test]
#[should_panic(expected = "2 replicas and 3 containers of gradients for 3 workers")]
fn a_replica_that_is_missing_is_refused() {
    let model = layers();
    let mut optimizer = MuonClipConfig::new()
        .init_fused(&model)
        .distributed(devices(3));
    let grads = gradients(&model, 0, 3);
    optimizer.step(0.02, vec![model; 2], grads);
}

#[test]
#[should_panic(expected = "`layers.0.weight` of shape [16, 16] was not in the model")]
fn another_model_is_refused() {
    let model = layers();
    let other = seeded(Mixed::new(&training_device()));
    let mut optimizer = MuonClipConfig::new()
        .init_fused(&other)
        .distributed(devices(2));
    let grads = gradients(&model, 0, 2);
    optimizer.step(0.02, vec![model; 2], grads);
}

/// A server that answers while `answers` says so; it may accept and say nothing.
fn server(answers: impl Fn() -> bool + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if !answers() {
                silent.push(stream);
                continue;
            }
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        }
    });
    address
}

fn for_ever() {
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

fn remote(address: SocketAddr) -> Worker {
    Worker::remote(Device::flex(), address)
}

#[test]
fn workers_that_answer_are_waited_for() {
    let workers = Workers::new(vec![Worker::local(Device::flex()), remote(server(|| true))])
        .with_patience(Duration::from_secs(1));
    let work = || {
        thread::sleep(Duration::from_secs(3));
        42
    };
    assert_eq!(workers.supervise(work), Ok(42));
}

#[test]
fn a_worker_whose_process_is_gone_is_named_within_five_seconds() {
    // Nobody listens at an address that was given back.
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let workers = Workers::new(vec![remote(server(|| true)), remote(gone)]);
    let start = Instant::now();
    let error = workers.supervise(for_ever).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(5));
    let WorkerError::Died { rank, worker, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((*rank, worker), (1, &gone.to_string()));
    // What the work said about it is not what matters.
    let error = workers.supervise(|| panic!("cannot read")).unwrap_err();
    assert!(
        matches!(error, WorkerError::Died { rank: 1, .. }),
        "{error}"
    );
}

#[test]
fn a_worker_that_falls_silent_is_named() {
    let start = Instant::now();
    let silent = server(move || start.elapsed() < Duration::from_secs(1));
    let patience = Duration::from_secs(3);
    let workers =
        Workers::new(vec![remote(server(|| true)), remote(silent)]).with_patience(patience);
    let error = workers.supervise(for_ever).unwrap_err();
    assert!(
        matches!(error, WorkerError::Silent { rank: 1, .. }),
        "{error}"
    );
    assert!(start.elapsed() < patience + Duration::from_secs(4));
}

#[test]
fn a_panic_that_is_no_workers_fault_says_what_it_was() {
    let workers = Workers::new(vec![Worker::local(Device::flex()), remote(server(|| true))]);
    let error = workers
        .supervise(|| panic!("a {} of its own", "fault"))
        .unwrap_err();
    assert_eq!(
        error,
        WorkerError::Panicked {
            message: "a fault of its own".to_owned()
        }
    );
}
