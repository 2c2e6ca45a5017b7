use std::collections::{HashMap, HashSet};

use burn::tensor::{Device, Int, Tensor};
use examples::synthetic::{
    Batch, Example, Operation, TaskKind, Token, held_out_examples, mqar, palindrome, stack,
    train_examples,
};

use super::default_settings;

fn drawn(task: TaskKind, count: usize) -> Vec<Example> {
    train_examples(task, &default_settings().tasks, 7, 0, count)
}

#[test]
fn a_palindrome_by_hand() {
    let example = palindrome(&[3, 1, 2]);
    assert_eq!(example.tokens, [3, 1, 2, 0, 2, 1, 3]);
    assert_eq!(example.answers, [4, 5, 6]);
}

#[test]
fn recall_by_hand() {
    let example = mqar(&[(1, 9), (2, 8), (3, 9)], &[1, 0, 2]);
    assert_eq!(example.tokens, [1, 9, 2, 8, 3, 9, 0, 2, 8, 1, 9, 3, 9]);
    assert_eq!(example.answers, [8, 10, 12]);
}

#[test]
fn stacks_by_hand() {
    let push = |stack, symbol| Operation::Push { stack, symbol };
    let pop = |stack| Operation::Pop { stack };
    let example = stack(&[push(2, 7), push(2, 8), push(3, 9), pop(2), pop(2), pop(3)]);
    let tokens = [
        0, 2, 7, 0, 2, 8, 0, 3, 9, // pushes
        1, 2, 8, 1, 2, 7, 1, 3, 9, // pops
    ];
    assert_eq!(example.tokens, tokens);
    assert_eq!(example.answers, [11, 14, 17]);
}

#[test]
#[should_panic(expected = "nothing is on stack 2")]
fn nothing_comes_off_an_empty_stack() {
    stack(&[
        Operation::Push {
            stack: 3,
            symbol: 5,
        },
        Operation::Pop { stack: 2 },
    ]);
}

/// The answer at `at`, from the tokens before it alone.
fn solve(task: TaskKind, before: &[Token]) -> Token {
    match task {
        TaskKind::Palindrome => {
            let separator = before.iter().position(|&token| token == 0).expect("one");
            let answered = before.len() - separator - 1;
            before[separator - 1 - answered]
        }
        TaskKind::Mqar => {
            let separator = before.iter().position(|&token| token == 0).expect("one");
            let key = before[before.len() - 1];
            let mut pairs = before[..separator].chunks(2).filter(|pair| pair[0] == key);
            let value = pairs.next().expect("the key was given")[1];
            assert_eq!(pairs.next(), None, "keys are distinct");
            value
        }
        TaskKind::Stack => {
            let mut stacks: HashMap<Token, Vec<Token>> = HashMap::new();
            for operation in before.chunks_exact(3) {
                let stack = stacks.entry(operation[1]).or_default();
                match operation[0] {
                    0 => stack.push(operation[2]),
                    _ => assert_eq!(stack.pop(), Some(operation[2])),
                }
            }
            let wanted = &before[before.len() - 1];
            stacks[wanted].last().copied().expect("something is on it")
        }
    }
}

#[test]
fn every_answer_follows_from_the_tokens_before_it() {
    let sizes = default_settings().tasks;
    for task in TaskKind::ALL {
        for example in drawn(task, 200) {
            assert_eq!(example.tokens.len(), task.length(&sizes), "{task:?}");
            for &answer in &example.answers {
                let found = solve(task, &example.tokens[..answer]);
                assert_eq!(found, example.tokens[answer], "{task:?} {example:?}");
            }
        }
    }
}

#[test]
fn examples_have_as_many_answers_as_the_sizes_say_and_use_the_whole_vocabulary() {
    let sizes = default_settings().tasks;
    for (task, answers) in [
        (TaskKind::Palindrome, sizes.reversed),
        (TaskKind::Mqar, sizes.pairs),
        (TaskKind::Stack, sizes.operations / 2),
    ] {
        let examples = drawn(task, 200);
        assert!(
            examples
                .iter()
                .all(|example| example.answers.len() == answers)
        );
        let used: HashSet<Token> = examples.into_iter().flat_map(|e| e.tokens).collect();
        let all = 0..task.vocabulary(&sizes) as Token;
        assert_eq!(used, all.collect(), "{task:?}");
    }
}

#[test]
fn an_odd_number_of_operations_leaves_one_symbol_on_a_stack() {
    let mut sizes = default_settings().tasks;
    for operations in [2, 3, 7] {
        sizes.operations = operations;
        for example in train_examples(TaskKind::Stack, &sizes, 0, 0, 50) {
            assert_eq!(example.tokens.len(), 3 * operations);
            assert_eq!(example.answers.len(), operations / 2);
        }
    }
}

#[test]
fn examples_follow_from_seed_and_step() {
    let sizes = default_settings().tasks;
    for task in TaskKind::ALL {
        let draw = |seed, step| train_examples(task, &sizes, seed, step, 8);
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
        // A longer draw begins with the shorter one.
        assert_eq!(train_examples(task, &sizes, 1, 2, 9)[..8], draw(1, 2));
    }
}

#[test]
fn held_out_examples_are_fixed_and_never_trained_on() {
    let sizes = default_settings().tasks;
    for task in TaskKind::ALL {
        let held_out = held_out_examples(task, &sizes, 256);
        assert_eq!(held_out, held_out_examples(task, &sizes, 256));
        let held_out: HashSet<Vec<Token>> = held_out.into_iter().map(|e| e.tokens).collect();
        assert_eq!(held_out.len(), 256, "{task:?}");
        for (seed, step) in [(0, 0), (0, 1), (1, 0), (2, 1999)] {
            for example in train_examples(task, &sizes, seed, step, 64) {
                assert!(
                    !held_out.contains(&example.tokens),
                    "{task:?} {seed} {step}"
                );
            }
        }
    }
}

#[test]
fn a_batch_predicts_each_answer_where_the_token_before_it_is_read() {
    let device = Device::flex();
    let batch = Batch::new(&[palindrome(&[3, 1]), palindrome(&[2, 4])], &device);
    fn integers<const D: usize>(x: Tensor<D, Int>) -> Vec<i64> {
        x.into_data().iter::<i64>().collect()
    }
    assert_eq!(batch.inputs.dims(), [2, 4]);
    assert_eq!(integers(batch.inputs), [3, 1, 0, 1, 2, 4, 0, 4]);
    assert_eq!(integers(batch.places), [2, 3, 6, 7]);
    assert_eq!(integers(batch.answers), [1, 3, 4, 2]);
}
