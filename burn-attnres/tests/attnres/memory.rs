//! What a forward pass keeps for the backward pass: the allocator counts the tensors.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::{DType, Device, Tensor};
use burn_attnres::{AttnResConfig, BlockPlan, depth_attention};

use crate::numbers::{numbers, tensor};

/// Blocks of this size are tensors of vectors; numbers per token and graph nodes are far smaller.
const TENSOR_BYTES: usize = 1024 * 1024;
const TOKENS: usize = 32;
const WIDTH: usize = TENSOR_BYTES / TOKENS / size_of::<f32>();

/// The live tensor-sized blocks that were allocated while counting, by address, with the count they belong to.
static BLOCKS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The count that this thread's allocations belong to.
    static COUNTING: Cell<Option<usize>> = const { Cell::new(None) };
}

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

// SAFETY: every call is passed to the system allocator unchanged. The map allocates too, but never a block that
// is large enough to enter it, so the lock is not taken twice.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let pointer = unsafe { System.alloc(layout) };
        if layout.size() >= TENSOR_BYTES
            && let Ok(Some(count)) = COUNTING.try_with(Cell::get)
        {
            let mut blocks = BLOCKS.lock().expect("not poisoned");
            blocks.insert(pointer as usize, count);
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if layout.size() >= TENSOR_BYTES {
            let mut blocks = BLOCKS.lock().expect("not poisoned");
            blocks.remove(&(pointer as usize));
        }
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How many tensors `work` made that live as long as its result.
fn tensors_kept_by<T>(work: impl FnOnce() -> T) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    COUNTING.set(Some(count));
    let result = work();
    COUNTING.set(None);
    let blocks = BLOCKS.lock().expect("not poisoned");
    let kept = blocks.values().filter(|&&of| of == count).count();
    drop(blocks);
    drop(result);
    kept
}

fn leaf(seed: u64, device: &Device) -> Tensor<3> {
    let values = numbers(seed, TOKENS * WIDTH);
    tensor(&values, [1, TOKENS, WIDTH], DType::F32, device).require_grad()
}

/// No stack, no normalised keys, no weighted values: the result is the only tensor that a read leaves behind.
#[test]
fn a_read_keeps_no_copy_of_its_sources() {
    let device = Device::flex().autodiff();
    let sources: Vec<_> = (0..9).map(|i| leaf(i, &device)).collect();
    let query = tensor::<1>(&numbers(90, WIDTH), [WIDTH], DType::F32, &device).require_grad();
    let gamma = Tensor::<1>::ones([WIDTH], &device).require_grad();
    let kept = tensors_kept_by(|| depth_attention(&sources, query.clone(), gamma.clone(), 1e-6));
    assert_eq!(kept, 1);
}

/// The sub-layers here keep nothing, so what a stack keeps is one source a sub-layer, and its result.
#[test]
fn memory_grows_linearly_with_depth() {
    let device = Device::flex().autodiff();
    let embedding = leaf(1, &device);
    for plan in [BlockPlan::Full, BlockPlan::NumBlocks(8)] {
        for sublayers in [8, 16, 24] {
            let reads = AttnResConfig::new(WIDTH, sublayers)
                .with_plan(plan)
                .init(&device);
            let kept = tensors_kept_by(|| {
                let mut stream = reads.start(embedding.clone());
                for _ in 0..sublayers {
                    let h = stream.read(&reads);
                    stream.write(h * 0.5);
                }
                stream.finish(&reads)
            });
            assert_eq!(kept, sublayers + 1, "{plan}, {sublayers} sub-layers");
        }
    }
}
