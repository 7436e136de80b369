// SPDX-License-Identifier: Apache-2.0
// Threads of a Rust program ask for CUDA, between panics that they catch.
extern "C" {
    fn dlopen(name: *const u8, flags: i32) -> *const u8;
    fn dlsym(handle: *const u8, name: *const u8) -> *const u8;
}

fn ask() -> i32 {
    unsafe {
        let name = dlsym(dlopen("libcuda.so.1\0".as_ptr(), 2), "cuInit\0".as_ptr());
        std::mem::transmute::<_, extern "C" fn(u32) -> i32>(name)(0)
    }
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let work = || std::panic::catch_unwind(|| std::panic::panic_any(ask())).unwrap_err();
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(work)).collect();
    for thread in threads {
        println!("cuInit={}", thread.join().unwrap().downcast_ref::<i32>().unwrap());
    }
}
