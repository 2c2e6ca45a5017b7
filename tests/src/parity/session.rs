//! The meeting place of a case and the crates: inputs go out as Burn tensors, outputs come back,
//! and the backward pass runs over whatever was handed out.

use burn::tensor::{Device, Gradients, Tensor, TensorData};

use super::error::CaseError;
use super::tensors::{StoredTensor, TensorFile, Values};

/// What a run computed for one expected tensor.
#[derive(Debug)]
pub(super) struct Computed {
    /// The name of the expected tensor (`out.o`, `grad.q`).
    pub(super) name: String,
    /// The computed tensor, or why there is none.
    pub(super) value: Result<StoredTensor, String>,
}

/// Reads one gradient once the backward pass is done.
type ReadGradient = Box<dyn Fn(&Gradients) -> Option<StoredTensor>>;

/// One run over one case on one device.
pub(super) struct Session<'case> {
    tensors: &'case TensorFile,
    device: Device,
    outputs: Vec<Computed>,
    gradients: Vec<(String, ReadGradient)>,
    loss: Option<Tensor<1>>,
    no_backward: Option<String>,
}

impl<'case> Session<'case> {
    /// A run on `device`; gradients are computed if the device has autodiff.
    pub(super) fn new(tensors: &'case TensorFile, device: Device) -> Self {
        Self {
            tensors,
            device,
            outputs: Vec::new(),
            gradients: Vec::new(),
            loss: None,
            no_backward: None,
        }
    }

    /// The device of the run.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The input `in.NAME`, whose gradient is recorded if the case expects one. `shape` gives the
    /// sizes that other inputs already fixed.
    pub(super) fn input<const D: usize>(
        &mut self,
        name: &str,
        shape: [Option<usize>; D],
    ) -> Result<Tensor<D>, CaseError> {
        let tensor = self.read::<D>(&format!("in.{name}"), shape)?;
        let gradient = format!("grad.{name}");
        if !(self.device.is_autodiff() && self.tensors.contains(&gradient)) {
            return Ok(tensor);
        }
        self.tensors.float(&gradient)?;
        let tensor = tensor.require_grad();
        let leaf = tensor.clone();
        self.gradients.push((
            gradient,
            Box::new(move |gradients| leaf.grad(gradients).map(|grad| stored(grad.into_data()))),
        ));
        Ok(tensor)
    }

    /// Like [`input`](Self::input), for an input that a case may leave out.
    pub(super) fn optional_input<const D: usize>(
        &mut self,
        name: &str,
        shape: [Option<usize>; D],
    ) -> Result<Option<Tensor<D>>, CaseError> {
        if self.tensors.contains(&format!("in.{name}")) {
            self.input(name, shape).map(Some)
        } else {
            Ok(None)
        }
    }

    /// An error about the shape of `in.NAME`.
    pub(super) fn bad_input(
        &self,
        name: &str,
        shape: &[usize],
        wanted: impl Into<String>,
    ) -> CaseError {
        self.tensors.bad_shape(&format!("in.{name}"), shape, wanted)
    }

    /// Hands in the output `out.NAME`, which the case must expect.
    pub(super) fn output<const D: usize>(
        &mut self,
        name: &str,
        tensor: Tensor<D>,
    ) -> Result<(), CaseError> {
        let expected = format!("out.{name}");
        let (wanted_shape, _) = self.tensors.float(&expected)?;
        self.add_to_loss(name, wanted_shape, &tensor)?;
        self.outputs.push(Computed {
            name: expected,
            value: Ok(stored(tensor.into_data())),
        });
        Ok(())
    }

    /// Like [`output`](Self::output), for an output that a case need not expect: without
    /// `out.NAME` it is dropped, unless it has a cotangent.
    pub(super) fn optional_output<const D: usize>(
        &mut self,
        name: &str,
        tensor: Tensor<D>,
    ) -> Result<(), CaseError> {
        let names = [format!("out.{name}"), format!("cot.{name}")];
        if names.iter().any(|name| self.tensors.contains(name)) {
            self.output(name, tensor)?;
        }
        Ok(())
    }

    /// Hands in a check that the crates passed or failed without computing a tensor.
    pub(super) fn failed(&mut self, name: &str, reason: String) {
        self.outputs.push(Computed {
            name: name.into(),
            value: Err(reason),
        });
    }

    /// Runs the backward pass, if there is one, and returns everything that was computed.
    pub(super) fn finish(mut self) -> Result<Vec<Computed>, CaseError> {
        if self.gradients.is_empty() {
            return Ok(self.outputs);
        }
        if self.loss.is_none() && self.no_backward.is_none() {
            // Gradients of nothing: the case lost its cotangents.
            let outputs = self.tensors.names_under("out.");
            let missing = outputs.map(|name| name.replacen("out.", "cot.", 1)).next();
            self.tensors.get(missing.as_deref().unwrap_or("cot.*"))?;
        }
        let tracked = self.loss.take().filter(Tensor::is_tracked);
        let gradients = match (&self.no_backward, tracked) {
            (Some(reason), _) => Err(reason.clone()),
            (None, Some(loss)) => Ok(Some(loss.backward())),
            (None, None) => Ok(None),
        };
        for (name, read) in std::mem::take(&mut self.gradients) {
            let value = match &gradients {
                Err(reason) => Err(reason.clone()),
                Ok(gradients) => match gradients.as_ref().and_then(read) {
                    Some(gradient) => Ok(gradient),
                    None => self.zeros_if_wanted(&name)?,
                },
            };
            self.outputs.push(Computed { name, value });
        }
        Ok(self.outputs)
    }

    /// Autodiff leaves out the gradient of an input that nothing depends on. That is zero, and
    /// right only where zero is wanted.
    fn zeros_if_wanted(&self, name: &str) -> Result<Result<StoredTensor, String>, CaseError> {
        let (shape, want) = self.tensors.float(name)?;
        if want.iter().any(|value| *value != 0.0) {
            return Ok(Err("the input got no gradient".into()));
        }
        Ok(Ok(StoredTensor {
            shape: shape.to_vec(),
            values: Values::Float(vec![0.0; want.len()]),
        }))
    }

    /// Adds `sum(output * cot.NAME)` to the loss.
    fn add_to_loss<const D: usize>(
        &mut self,
        name: &str,
        wanted_shape: &[usize],
        output: &Tensor<D>,
    ) -> Result<(), CaseError> {
        let cotangent = format!("cot.{name}");
        if !(self.device.is_autodiff() && self.tensors.contains(&cotangent)) {
            return Ok(());
        }
        let dims = output.dims();
        let (shape, _) = self.tensors.float(&cotangent)?;
        if shape != dims {
            if shape != wanted_shape {
                let wanted = format!("the shape of out.{name}, {wanted_shape:?}");
                return Err(self.tensors.bad_shape(&cotangent, shape, wanted));
            }
            self.no_backward = Some(format!("no backward pass: out.{name} has another shape"));
            return Ok(());
        }
        let cotangent = self.read::<D>(&cotangent, dims.map(Some))?;
        let term = (output.clone() * cotangent).sum();
        self.loss = Some(match self.loss.take() {
            Some(loss) => loss + term,
            None => term,
        });
        Ok(())
    }

    fn read<const D: usize>(
        &self,
        name: &str,
        wanted: [Option<usize>; D],
    ) -> Result<Tensor<D>, CaseError> {
        let (shape, values) = self.tensors.float(name)?;
        let fits = shape.len() == D
            && shape
                .iter()
                .zip(wanted)
                .all(|(size, wanted)| wanted.is_none_or(|wanted| wanted == *size));
        if !fits {
            return Err(self.tensors.bad_shape(name, shape, layout(&wanted)));
        }
        let data = TensorData::new(values.to_vec(), shape.to_vec());
        Ok(Tensor::from_data(data, &self.device))
    }
}

/// A wanted shape in words: `[2, 17, _, _]`, with `_` for a free size.
fn layout(wanted: &[Option<usize>]) -> String {
    let sizes: Vec<_> = wanted
        .iter()
        .map(|size| size.map_or_else(|| "_".to_owned(), |size| size.to_string()))
        .collect();
    format!("[{}]", sizes.join(", "))
}

fn stored(data: TensorData) -> StoredTensor {
    StoredTensor {
        shape: data.shape().to_vec(),
        values: Values::Float(data.iter::<f32>().collect()),
    }
}
