//! The tar format (POSIX ustar): regular files of root and their folders, in order of their paths, without times. Pure.

use std::collections::BTreeSet;

/// Longest path, in bytes.
pub const NAME_LEN_MAX: usize = 100;

const BLOCK: usize = 512;
const FOLDER_MODE: u32 = 0o755;
/// Place and length of the header's checksum.
const CHECKSUM: (usize, usize) = (148, 8);

/// A file.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Path without a leading `/`, at most [`NAME_LEN_MAX`] bytes.
    pub path: String,
    /// Permissions.
    pub mode: u32,
    /// Content.
    pub bytes: Vec<u8>,
}

/// The archive of these files.
pub(super) fn archive(files: &[Entry]) -> Vec<u8> {
    let mut sorted: Vec<_> = files.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let folders: BTreeSet<_> = sorted.iter().flat_map(|file| folders(&file.path)).collect();
    let mut archive = Vec::new();
    for folder in folders {
        archive.extend(header(folder, FOLDER_MODE, 0, b'5'));
    }
    for file in sorted {
        archive.extend(header(&file.path, file.mode, file.bytes.len(), b'0'));
        archive.extend_from_slice(&file.bytes);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    // The end is marked by two blocks of zeros.
    archive.resize(archive.len() + 2 * BLOCK, 0);
    archive
}

/// The folders above a path, each with a slash at its end.
fn folders(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..=at])
}

fn header(path: &str, mode: u32, size: usize, kind: u8) -> [u8; BLOCK] {
    assert!(
        path.len() <= NAME_LEN_MAX,
        "{path}: too long for a tar archive"
    );
    let mut header = [0; BLOCK];
    let mut put =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, path);
    put(100, &format!("{mode:07o}"));
    // Owner and group.
    put(108, &format!("{:07o}", 0));
    put(116, &format!("{:07o}", 0));
    put(124, &format!("{size:011o}"));
    // Time of the last change.
    put(136, &format!("{:011o}", 0));
    put(257, "ustar\x0000");
    header[156] = kind;
    let (at, len) = CHECKSUM;
    header[at..at + len].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[at..at + len].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_their_files_and_blocks_are_whole() {
        let file = |path: &str, len: usize| Entry {
            path: path.to_owned(),
            mode: 0o755,
            bytes: vec![b'x'; len],
        };
        let archive = archive(&[file("b", 513), file("a/b/c", 0)]);
        let names: Vec<_> = archive.chunks(BLOCK).map(|block| block[0]).collect();
        assert_eq!(names, [b'a', b'a', b'a', b'b', b'x', b'x', 0, 0]);
        assert!(archive.starts_with(b"a/\0"));
    }

    #[test]
    fn a_header_is_that_of_tar() {
        let header = header("a", 0o755, 8, b'0');
        // As GNU tar writes it, with its own checksum.
        assert_eq!(&header[100..124], b"0000755\x000000000\x000000000\0");
        assert_eq!(&header[124..148], b"00000000010\x0000000000000\0");
        assert_eq!(&header[257..265], b"ustar\x0000");
        let mut plain = header;
        plain[148..156].fill(b' ');
        let sum: u32 = plain.iter().map(|byte| u32::from(*byte)).sum();
        assert_eq!(&header[148..156], format!("{sum:06o}\0 ").as_bytes());
    }
}
