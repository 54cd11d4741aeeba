//! A first array: create it, write to it, open it again and read from it.

use cuzarr::prelude::*;

pub(crate) fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("cuzarr-first-{}", std::process::id()));
    let path = folder.join("temperature.zarr").display().to_string();

    let array = Array::builder([4, 6], DataType::Float32)
        .chunks([2, 3])
        .fill_value(f32::NAN)
        .dimension_names(["y", "x"])
        .attribute("units", "K")
        .create(&path)?;
    let row: Vec<f32> = (0..6).map(|x| 280.0 + x as f32).collect();
    array.write(&Selection::region(&[1, 0], &[1, 6])?, &row)?;

    let array = cuzarr::open_array(&path)?;
    let all = array.read::<f32>(&Selection::all(array.shape()))?;
    assert_eq!(all.shape(), [4, 6]);
    assert_eq!(all.element(&[1, 5]), Some(&285.0));
    assert!(all.element(&[0, 0]).is_some_and(|element| element.is_nan()), "nobody wrote this one");

    // Another type is an error that says so, or a conversion where it is asked for.
    let corner = Selection::region(&[1, 0], &[1, 2])?;
    assert_eq!(array.read::<f64>(&corner).unwrap_err().kind(), ErrorKind::DTypeMismatch);
    assert_eq!(array.read_as::<f64>(&corner)?[..], [280.0, 281.0]);

    println!("{array:?}: {:?}", &all[6..12]);
    std::fs::remove_dir_all(folder).expect("the folder was made above");
    Ok(())
}
