#![doc = include_str!("../docs/from_adamw.md")]
