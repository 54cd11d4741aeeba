//! Elements that are decoded by the attributes of their array: the same numbers and dates on every device.

#[path = "../../cuzarr/tests/model/mod.rs"]
mod model;

use cuzarr::ErrorKind;
use cuzarr::meta::DataType;
use cuzarr::node::Array;
use cuzarr::plan::Selection;
use cuzarr_compute::{ComputeOptions, Expr};
use cuzarr_device::{DType, Device, HostElement};
use model::devices;
use serde_json::{Value, json};

fn array<T: HostElement>(name: &str, data_type: DataType, values: &[T], attributes: &Value) -> Array {
    let attributes = attributes.as_object().unwrap().clone();
    let shape = [values.len() as u64];
    let array = Array::builder(shape, data_type).chunks([3]).attributes(attributes).dimension_names(["x"]);
    let array = array.create(&format!("memory://decoded-{name}")).unwrap();
    array.write(&Selection::all(&shape), values).unwrap();
    array
}

fn computed<T: HostElement>(expr: &Expr, device: Device) -> Vec<T> {
    let options = ComputeOptions::default().with_device(device);
    expr.compute(&options).unwrap().to_device(Device::Cpu).unwrap().host_slice::<T>().unwrap().to_vec()
}

#[test]
fn packed_and_missing_elements_are_the_same_bits_on_every_device() {
    let attributes = json!({"scale_factor": 0.1, "add_offset": -3.5, "_FillValue": -1, "missing_value": [7, 8], "_Unsigned": "true"});
    let packed = array("packed", DataType::Int8, &[-1i8, 0, 7, 100, -128, 8, 9], &attributes);
    let expected = [f64::NAN, -3.5, f64::NAN, 100.0 * 0.1 - 3.5, 128.0 * 0.1 - 3.5, f64::NAN, 9.0 * 0.1 - 3.5];
    let marked = array("marked", DataType::Int16, &[5i16, -9, 6], &json!({"missing_value": -9}));
    for device in devices() {
        let numbers = Expr::array(packed.clone()).unwrap().decoded(None).unwrap();
        let bits: Vec<u64> = computed::<f64>(&numbers, device).iter().map(|number| number.to_bits()).collect();
        assert_eq!(bits, expected.map(f64::to_bits), "{device}");
        let numbers = Expr::array(marked.clone()).unwrap().decoded(None).unwrap();
        assert_eq!(
            computed::<f32>(&numbers, device).iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            [5.0, f32::NAN, 6.0].map(f32::to_bits)
        );
        let wide = Expr::array(marked.clone()).unwrap().decoded(Some(DType::FLOAT64)).unwrap();
        assert_eq!((computed::<f64>(&wide, device)[2], wide.dtype()), (6.0, DType::FLOAT64));
    }
}

#[test]
fn dates_are_nanoseconds_on_every_device_and_those_that_do_not_fit_are_errors() {
    let days =
        array("days", DataType::Int32, &[0i32, 7, -1, 30], &json!({"units": "days since 1970-01-02", "_FillValue": 7}));
    let far = array("far", DataType::Int64, &[0i64, 200_000], &json!({"units": "days since 1970-01-01"}));
    let day = 86_400_000_000_000i64;
    for device in devices() {
        let dates = Expr::array(days.clone()).unwrap().decoded_times().unwrap().unwrap();
        assert_eq!(computed::<i64>(&dates, device), [day, i64::MIN, 0, 31 * day], "{device}");
        let dates = Expr::array(far.clone()).unwrap().decoded_times().unwrap().unwrap();
        let options = ComputeOptions::default().with_device(device);
        assert_eq!(dates.compute(&options).unwrap_err().kind(), ErrorKind::OutOfRange);
    }
    let plain = array("plain", DataType::Int32, &[0i32], &json!({"units": "K"}));
    assert!(Expr::array(plain).unwrap().decoded_times().unwrap().is_none());
}

#[test]
fn what_is_computed_is_no_array_and_integers_hold_no_missing_elements() {
    let stored = Expr::array(array("kind", DataType::Int16, &[1i16], &json!({"_FillValue": 1}))).unwrap();
    let computed = stored.astype(DType::FLOAT32).unwrap();
    assert_eq!(computed.decoded(None).err().unwrap().kind(), ErrorKind::InvalidArgument);
    assert_eq!(stored.decoded(Some(DType::INT32)).err().unwrap().kind(), ErrorKind::InvalidArgument);
}
