//! A file that something else has changed: it is set aside as it is, what is good in it goes on,
//! and nothing that is not good does.

use super::*;

/// A file with 200 records, as a process leaves it that is killed or not.
fn written(killed: bool) -> Vec<u8> {
    let folder = Folder::new();
    let (disk, _) = open(folder.settings(Writing::Caller));
    for number in 0..200 {
        disk.submit(vec![put(number, format!("record {number}").as_bytes())]);
    }
    if !killed {
        drop(disk);
    }
    std::fs::read(folder.data()).unwrap()
}

/// Opens a folder with that file; how many of the records are there, and what was said.
fn opened(image: &[u8]) -> (usize, Vec<DiskEvent>) {
    let folder = Folder::new();
    std::fs::write(folder.data(), image).unwrap();
    let told = Arc::new(Told::default());
    let (disk, mut contents) = Disk::open(folder.settings(Writing::Caller), told.alarm()).unwrap();
    let records = contents.take(Space::Events);
    for (key, record) in &records {
        let number = u64::from_be_bytes(key[..].try_into().unwrap());
        assert_eq!(
            record,
            format!("record {number}").as_bytes(),
            "good or not there"
        );
    }
    let held = Arc::new(Held::default());
    let source: Arc<dyn Source> = Arc::clone(&held) as Arc<dyn Source>;
    disk.register(Arc::downgrade(&source));
    disk.ready();
    held.add(&disk, 1);
    let said = told.take();
    assert_eq!(said.last(), Some(&DiskEvent::Up), "{said:?}");
    if let Some(DiskEvent::SetAside { file, kept, .. }) = said.first() {
        let aside = std::fs::metadata(file).unwrap().len();
        assert!(aside > 0 || image.is_empty());
        assert!(*kept >= records.len());
    } else {
        assert_eq!(said.len(), 1, "{said:?}");
    }
    (records.len(), said)
}

/// Failure matrix 42: whichever bit is flipped, the store opens with good records only, and says
/// so when any is missing.
#[test]
fn a_flipped_bit_is_found_and_harms_no_other_record() {
    let images = [written(true), written(false)];
    let (mut set_aside, mut kept) = (0, 0);
    let flips = 300;
    for flip in 0..flips {
        let image = &images[flip % 2];
        let mut seed = (flip / 2) as u64 + 1;
        seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (seed << 13);
        let bit = usize::try_from(seed % (image.len() as u64 * 8)).unwrap();
        let mut changed = image.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (records, said) = opened(&changed);
        if matches!(said.first(), Some(DiskEvent::SetAside { .. })) {
            set_aside += 1;
            kept += usize::from(records > 0);
        } else {
            let only_the_newest = records >= 199;
            assert!(
                only_the_newest,
                "bit {bit}: {records} records and not a word"
            );
        }
    }
    println!("{set_aside} of {flips} flips were found, {kept} left something good");
    assert!(set_aside > 0, "some bit must matter");
}

/// Failure matrix 42: cut anywhere, the file opens or is set aside; never a crash.
#[test]
fn a_file_cut_anywhere_is_opened_or_set_aside() {
    let image = written(true);
    for part in 0..64 {
        let length = image.len() * part / 64;
        let (records, said) = opened(&image[..length]);
        let aside = matches!(said.first(), Some(DiskEvent::SetAside { .. }));
        assert!(
            aside || records == 200 || length == 0,
            "{length}: {records} {said:?}"
        );
    }
}

/// A file that never was one of ours.
#[test]
fn a_file_of_something_else_is_set_aside() {
    for image in [&b"not a database"[..], &[0; 100_000], &[0xFF; 5000]] {
        let (records, said) = opened(image);
        assert_eq!(records, 0);
        assert!(
            matches!(said.first(), Some(DiskEvent::SetAside { kept: 0, .. })),
            "{said:?}"
        );
    }
}
