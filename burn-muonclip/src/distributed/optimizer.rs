use std::collections::HashMap;

use burn::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn::module::{Module, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Device;

use super::broadcast::broadcast;
use super::reduce::Reduce;
use super::threads::beside_each_other;
use super::{Collective, Owners, Transfers};
use crate::fused::{Gradients, Health, MeasuredSize, MuonClip, StepReport, assess, read};
use crate::qk_clip::QkClip;

/// [`MuonClip`] with its work and its state shared out over several workers; see [the module](super).
///
/// A step has the bits of one worker that adds up the same gradients in the order of the ranks.
///
/// # Example
/// ```
/// use burn::module::Module;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::GradientsParams;
/// use burn::tensor::{Device, Distribution, Tensor};
/// use burn_muonclip::MuonClipConfig;
///
/// let devices = vec![Device::default().autodiff(); 2];
/// let model: Linear = LinearConfig::new(8, 8).init(&devices[0]);
/// let optimizer = MuonClipConfig::new().init_fused(&model);
/// let mut optimizer = optimizer.distributed(devices.clone());
///
/// // Every worker has a replica, and its part of the batch.
/// let replicas: Vec<Linear> = devices.iter().map(|device| model.clone().fork(device)).collect();
/// let gradients = replicas.iter().zip(&devices).map(|(replica, device)| {
///     let x = Tensor::<2>::random([4, 8], Distribution::Default, device);
///     GradientsParams::from_grads(replica.forward(x).square().mean().backward(), replica)
/// });
/// let gradients = gradients.collect();
/// let replicas = optimizer.step(1e-2, replicas, gradients);
/// assert_eq!(replicas.len(), 2);
///
/// // What one worker would save and load.
/// let saved = optimizer.to_single().into_bytes().unwrap();
/// # let _ = saved;
/// ```
pub struct DistributedMuonClip<C = Transfers> {
    collective: C,
    owners: Owners,
    /// By rank, each with the state of what it owns.
    members: Vec<MuonClip>,
    qk_clip: Option<QkClip>,
    last_report: Option<StepReport>,
}

impl MuonClip {
    /// Shares this optimizer out, with the state it has, over workers on these devices, by rank.
    ///
    /// # Panics
    /// If there are no devices.
    pub fn distributed(self, devices: Vec<Device>) -> DistributedMuonClip {
        self.distributed_by(Transfers::new(devices))
    }

    /// The same with another way to bring tensors from one worker to another.
    pub fn distributed_by<C: Collective>(self, collective: C) -> DistributedMuonClip<C> {
        let ranks = collective.devices().len();
        let owners = Owners::new(&self, ranks);
        let members = (0..ranks).map(|rank| {
            let mut member = self.clone();
            member.qk_clip = None;
            member.states.retain(|path| owners.of(path) == Some(rank));
            member
        });
        DistributedMuonClip {
            members: members.collect(),
            collective,
            owners,
            qk_clip: self.qk_clip,
            last_report: None,
        }
    }
}

impl<C: Collective> DistributedMuonClip<C> {
    /// Updates all replicas by the gradients of all, both by rank. The gradients are added up: where the loss of each is a mean over its part of
    /// the batch, divide it by their number.
    ///
    /// A step with a NaN or infinite gradient anywhere is skipped everywhere.
    ///
    /// # Panics
    /// As [`MuonClip::step`], and if there is not one replica and one container of gradients for every worker. A device that no longer answers panics too:
    /// [`Workers`](super::Workers) makes an error of it.
    pub fn step<M: Module>(
        &mut self,
        lr: impl Into<ModuleLearningRate>,
        replicas: Vec<M>,
        grads: Vec<GradientsParams>,
    ) -> Vec<M> {
        let workers = self.members.len();
        assert!(
            replicas.len() == workers && grads.len() == workers,
            "DistributedMuonClip: {} replicas and {} containers of gradients for {workers} workers",
            replicas.len(),
            grads.len()
        );
        let lr = lr.into();
        let mut reduce = Reduce::new(&self.collective, &self.owners, grads);
        replicas[0].visit(&mut reduce);
        let owned = reduce.finish();

        let jobs = self.members.iter().zip(replicas).zip(owned);
        let (replicas, gathered): (Vec<_>, Vec<_>) =
            beside_each_other(jobs, |((member, replica), owned)| {
                let mut gradients = member.gather(&lr, &replica, owned.into());
                let sizes = read(std::mem::take(&mut gradients.sizes));
                (replica, (gradients, sizes))
            })
            .into_iter()
            .unzip();
        let (gradients, sizes): (Vec<_>, Vec<_>) = gathered.into_iter().unzip();

        match assess(&self.in_order(sizes)) {
            Health::NonFinite { paths } => {
                if let Some(qk_clip) = &self.qk_clip {
                    qk_clip.discard();
                }
                for member in &mut self.members {
                    member.skip(paths.clone());
                }
                self.last_report = Some(StepReport::skipped(paths));
                replicas
            }
            Health::Finite { norm } => self.update(replicas, gradients, norm),
        }
    }

    fn update<M: Module>(
        &mut self,
        replicas: Vec<M>,
        gradients: Vec<Gradients>,
        norm: Option<f64>,
    ) -> Vec<M> {
        let owners: HashMap<ParamId, usize> = gradients
            .iter()
            .enumerate()
            .flat_map(|(rank, gradients)| gradients.uses.keys().map(move |&id| (id, rank)))
            .collect();
        let jobs = self.members.iter_mut().zip(replicas).zip(gradients);
        let replicas = beside_each_other(jobs, |((member, replica), gradients)| {
            member.update(replica, gradients, norm)
        });
        let replicas = broadcast(&self.collective, &owners, replicas);
        let reports = self.members.iter().filter_map(MuonClip::last_report);
        self.last_report = reports.cloned().reduce(StepReport::joined);
        let Some(qk_clip) = &self.qk_clip else {
            return replicas;
        };
        let maxima = qk_clip.recorder().take();
        let clip = |replica| qk_clip.apply_maxima(replica, &maxima);
        replicas.into_iter().map(clip).collect()
    }

    /// The sizes in the order of the module.
    fn in_order(&self, sizes: Vec<Vec<MeasuredSize>>) -> Vec<MeasuredSize> {
        let mut by_path: HashMap<_, _> = sizes
            .into_iter()
            .flatten()
            .map(|size| (size.path.clone(), size))
            .collect();
        let entries = self.members[0].plan.entries().iter();
        entries
            .filter_map(|entry| by_path.remove(&entry.path))
            .collect()
    }

    /// The optimizer with all of the state, as one worker has it: to save it, or to go on with another number of workers.
    pub fn to_single(&self) -> MuonClip {
        let mut members = self.members.iter();
        let mut single = members.next().expect("a group has a member").clone();
        for member in members {
            single.states.extend(member.states.clone());
        }
        single.qk_clip = self.qk_clip.clone();
        single.last_report = self.last_report.clone();
        single
    }

    /// Which worker owns which parameter.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// How tensors come from one worker to another, and how many bytes did.
    pub fn collective(&self) -> &C {
        &self.collective
    }

    /// Bytes of optimizer state that each worker holds now, by rank.
    pub fn state_bytes(&self) -> Vec<usize> {
        self.members.iter().map(MuonClip::state_bytes).collect()
    }

    /// The clipping of attention logits, with its last report.
    pub fn qk_clip(&self) -> Option<&QkClip> {
        self.qk_clip.as_ref()
    }

    /// What the last step did, of all workers together; `None` before the first.
    pub fn last_report(&self) -> Option<&StepReport> {
        self.last_report.as_ref()
    }
}

impl<C> core::fmt::Debug for DistributedMuonClip<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DistributedMuonClip")
            .field("members", &self.members)
            .field("last_report", &self.last_report)
            .finish_non_exhaustive()
    }
}
