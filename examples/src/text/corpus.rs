use std::fmt;

use sha2::{Digest, Sha256};

/// Number of different tokens: every value of a byte.
pub const VOCABULARY: usize = 256;

/// One file of text.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// What belongs together when the text is split: the package of a default document, empty for a user's file.
    pub group: String,
    /// Path inside the group or folder, with `/` between its parts on every platform.
    pub path: String,
    /// The bytes of the file: valid UTF-8 without NUL.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Document({}/{}, {} bytes)",
            self.group,
            self.path,
            self.bytes.len()
        )
    }
}

/// Documents in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corpus {
    /// What the text is, for people: printed and stored with a run.
    pub name: String,
    /// The documents in the order in which they are read.
    pub documents: Vec<Document>,
}

impl Corpus {
    /// Total size in bytes.
    pub fn bytes(&self) -> usize {
        self.documents
            .iter()
            .map(|document| document.bytes.len())
            .sum()
    }

    /// SHA-256 in lower-case hexadecimal of the documents' bytes, one after the other.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for document in &self.documents {
            hash.update(&document.bytes);
        }
        format!("{:x}", hash.finalize())
    }
}

/// Whether `bytes` count as text here: valid UTF-8 without a NUL byte.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}
