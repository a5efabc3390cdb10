//! Names: the letters that namespaces, kinds, subjects, actors and ids are made of.

use thiserror::Error;

use crate::limits::MAX_NAME_BYTES;

/// The namespace of an event that names none; it is left out of route keys.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Why a text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing at all.
    #[error("must not be empty")]
    Empty,
    /// More than [`MAX_NAME_BYTES`].
    #[error("has {0} bytes, at most {MAX_NAME_BYTES} are allowed")]
    TooLong(usize),
    /// A byte outside `A-Z a-z 0-9 . _ : @ -`.
    #[error("has a character at byte {0} that is not one of A-Z a-z 0-9 . _ : @ -")]
    BadByte(usize),
    /// `.` or `..`, which paths swallow.
    #[error("must not be '.' or '..'")]
    Dots,
}

/// One entry a byte, so that a name is checked with a load a byte and no branches.
const ALLOWED: [bool; 256] = {
    let mut table = [false; 256];
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:@-";
    let mut at = 0;
    #[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]
    while at < letters.len() {
        table[letters[at] as usize] = true;
        at += 1;
    }
    table
};

/// Checks that `text` is a name: 1 to 128 bytes of `A-Z a-z 0-9 . _ : @ -`, and not `.` or `..`.
pub fn check_name(text: &str) -> Result<&str, NameError> {
    let bytes = text.as_bytes();
    match bytes {
        [] => return Err(NameError::Empty),
        b"." | b".." => return Err(NameError::Dots),
        _ if bytes.len() > MAX_NAME_BYTES => return Err(NameError::TooLong(bytes.len())),
        _ => {}
    }
    #[allow(clippy::indexing_slicing)] // a u8 is always below 256
    match bytes.iter().position(|byte| !ALLOWED[usize::from(*byte)]) {
        Some(at) => Err(NameError::BadByte(at)),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_1_to_128_bytes_of_the_allowed_letters() {
        assert_eq!(check_name("video:123"), Ok("video:123"));
        assert_eq!(check_name(&"a".repeat(128)).map(str::len), Ok(128));
        assert_eq!(check_name(&"a".repeat(129)), Err(NameError::TooLong(129)));
        assert_eq!(check_name(""), Err(NameError::Empty));
        assert_eq!(check_name(".."), Err(NameError::Dots));
        assert_eq!(check_name("a b"), Err(NameError::BadByte(1)));
        assert_eq!(check_name("a/b"), Err(NameError::BadByte(1)));
        assert_eq!(check_name("é"), Err(NameError::BadByte(0)));
    }
}
