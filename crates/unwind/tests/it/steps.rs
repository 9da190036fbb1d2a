//! Single steps on made-up stacks: the refusals, and the frame-pointer fallback.

use brownout_unwind::{
    CodeMapping, Cursor, FRAME_BYTES_MAX, FrameRule, LookupPc, Memory, PcKind, RbpRule, Register,
    Stop, module_from_image, rule_for, rule_from_code, step, step_by_frame_pointer,
    step_with_registers,
};

/// A few words; everything else is unreadable.
struct Words(Vec<(u64, u64)>);

impl Memory for Words {
    fn read_u64(&self, addr: u64) -> Option<u64> {
        self.0
            .iter()
            .find(|(at, _)| *at == addr)
            .map(|(_, word)| *word)
    }
}

const UNCHANGED: RbpRule = RbpRule::Unchanged;

fn cursor() -> Cursor {
    Cursor::innermost(0x1000, 0x7000, 0x7100)
}

/// Steps, and checks that a refusal leaves the cursor alone.
fn stop(rule: FrameRule, mut cursor: Cursor, memory: &Words) -> Stop {
    let before = cursor;
    let stop = step(rule, &mut cursor, memory).unwrap_err();
    assert_eq!(cursor, before);
    stop
}

#[test]
fn refusals() {
    let empty = Words(vec![]);
    let rsp = |cfa_offset| FrameRule::Rsp {
        cfa_offset,
        rbp: UNCHANGED,
    };
    let rbp = |cfa_offset| FrameRule::Rbp {
        cfa_offset,
        rbp: UNCHANGED,
    };
    assert_eq!(stop(FrameRule::End, cursor(), &empty), Stop::Outermost);
    assert_eq!(stop(FrameRule::Unknown, cursor(), &empty), Stop::NoRule);
    assert_eq!(stop(rsp(8), cursor(), &empty), Stop::Unreadable);
    assert_eq!(stop(rsp(0), cursor(), &empty), Stop::Implausible);
    assert_eq!(stop(rsp(-8), cursor(), &empty), Stop::Implausible);
    assert_eq!(stop(rbp(-0x100), cursor(), &empty), Stop::Implausible);
    assert_eq!(
        stop(rsp(8), cursor(), &Words(vec![(0x7000, 0)])),
        Stop::Outermost
    );
    assert_eq!(
        stop(
            rbp(16),
            Cursor {
                rbp: None,
                ..cursor()
            },
            &empty
        ),
        Stop::RegisterUnknown
    );
    assert_eq!(
        stop(FrameRule::SignalFrame, cursor(), &empty),
        Stop::Unreadable
    );
    let rbx = Register::from_dwarf(3).unwrap();
    let other = FrameRule::Other {
        register: rbx,
        cfa_offset: 16,
        rbp: UNCHANGED,
    };
    assert_eq!(stop(other, cursor(), &empty), Stop::RegisterUnknown);
}

#[test]
fn an_unreadable_rbp_only_matters_when_it_is_needed() {
    let memory = Words(vec![(0x7008, 0x2000), (0x7010, 0x3000)]);
    let mut cursor = cursor();
    let lost = FrameRule::Rsp {
        cfa_offset: 16,
        rbp: RbpRule::AtCfa(-16),
    };
    assert_eq!(
        step(lost, &mut cursor, &memory).unwrap().return_addr,
        0x2000
    );
    assert_eq!(cursor.rbp, None);
    let unchanged = FrameRule::Rsp {
        cfa_offset: 8,
        rbp: UNCHANGED,
    };
    assert_eq!(
        step(unchanged, &mut cursor, &memory).unwrap().return_addr,
        0x3000
    );
    let by_rbp = FrameRule::Rbp {
        cfa_offset: 16,
        rbp: UNCHANGED,
    };
    assert_eq!(
        step(by_rbp, &mut cursor, &memory),
        Err(Stop::RegisterUnknown)
    );
}

#[test]
fn registers_by_both_numberings() {
    let names = |number| Register::from_dwarf(number).unwrap().encoding();
    // rax rdx rcx rbx rsi rdi rbp rsp
    assert_eq!(
        [0, 1, 2, 3, 4, 5, 6, 7].map(names),
        [0, 2, 1, 3, 6, 7, 5, 4]
    );
    assert_eq!(names(13), 13);
    assert_eq!(Register::from_dwarf(16), None);
    let memory = Words(vec![(0x9008, 0x2000)]);
    let r10 = Register::from_dwarf(10).unwrap();
    let rule = FrameRule::Other {
        register: r10,
        cfa_offset: 0,
        rbp: UNCHANGED,
    };
    let mut cursor = cursor();
    let registers = |register: Register| (register == r10).then_some(0x9010);
    let step = step_with_registers(rule, &mut cursor, &memory, registers).unwrap();
    assert_eq!((step.slot, cursor.rsp), (0x9008, 0x9010));
}

#[test]
fn lookups_of_return_addresses_are_inside_of_the_call() {
    assert_eq!(LookupPc::new(0x1000, PcKind::Exact).get(), 0x1000);
    assert_eq!(LookupPc::new(0x1000, PcKind::ReturnAddress).get(), 0xfff);
}

#[test]
fn frame_pointers_are_checked() {
    let memory = |frame| Words(vec![(frame, 0x7200), (frame + 8, 0x2000)]);
    let try_step = |rbp, frame, is_code: bool| {
        let mut cursor = Cursor { rbp, ..cursor() };
        step_by_frame_pointer(&mut cursor, &memory(frame), |pc| {
            assert_eq!(pc, 0x2000);
            is_code
        })
        .map(|step| (step, cursor))
    };
    let (step, cursor) = try_step(Some(0x7100), 0x7100, true).unwrap();
    assert_eq!((step.return_addr, step.slot), (0x2000, 0x7108));
    assert_eq!((cursor.pc, cursor.kind), (0x2000, PcKind::ReturnAddress));
    assert_eq!((cursor.rsp, cursor.rbp), (0x7110, Some(0x7200)));
    // Right after `mov rbp, rsp`.
    assert!(try_step(Some(0x7000), 0x7000, true).is_ok());
    let far = 0x7000 + FRAME_BYTES_MAX;
    assert!(try_step(Some(far), far, true).is_ok());
    let implausible = Err(Stop::Implausible);
    assert_eq!(try_step(Some(far + 8), far + 8, true), implausible);
    assert_eq!(try_step(Some(0x7100), 0x7100, false), implausible);
    assert_eq!(try_step(Some(0x7104), 0x7104, true), implausible);
    assert_eq!(try_step(Some(0x6ff8), 0x6ff8, true), implausible);
    assert_eq!(try_step(Some(0x7100), 0x7300, true), Err(Stop::Unreadable));
    assert_eq!(try_step(None, 0x7100, true), Err(Stop::RegisterUnknown));
}

#[test]
fn rules_from_code() {
    let both = [PcKind::Exact, PcKind::ReturnAddress];
    let rules = |code: &[u8]| both.map(|kind| rule_from_code(code, kind));
    let signal = [FrameRule::SignalFrame; 2];
    let unknown = [FrameRule::Unknown; 2];
    assert_eq!(rules(b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05\xcc"), signal);
    assert_eq!(rules(b"\xb8\x0f\0\0\0\x0f\x05\xcc\xcc"), signal);
    assert_eq!(rules(b"\xb8\x0e\0\0\0\x0f\x05\xcc\xcc"), unknown);
    assert_eq!(rules(b"\xb8\x0f\0\0\0"), unknown);
    // A linkage entry does not call, so that no return address points into it.
    let linkage = [
        FrameRule::Rsp {
            cfa_offset: 8,
            rbp: UNCHANGED,
        },
        FrameRule::Unknown,
    ];
    assert_eq!(rules(b"\xff\x25\0\0\0\0"), linkage);
    assert_eq!(rules(b"\xf3\x0f\x1e\xfa\xff\x25\0\0\0\0"), linkage);
    assert_eq!(rules(b"\xff\x15\0\0\0\0"), unknown);
    assert_eq!(rules(b""), unknown);
}

/// A page with an x86-64 header, one segment of the first 2048 bytes, and tables at `tables`, whose
/// header says that `.eh_frame` is at `eh_frame`.
fn page(tables: u64, eh_frame: i32) -> Vec<u8> {
    let mut page = vec![0_u8; 4096];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    put(18, &62_u16.to_le_bytes());
    put(32, &64_u64.to_le_bytes());
    put(54, &56_u16.to_le_bytes());
    put(56, &2_u16.to_le_bytes());
    // Loaded, readable and executable; 2048 bytes in file and memory.
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
    put(64 + 32, &2048_u64.to_le_bytes());
    put(64 + 40, &2048_u64.to_le_bytes());
    put(120, &0x6474_e550_u32.to_le_bytes());
    put(120 + 16, &tables.to_le_bytes());
    put(120 + 40, &16_u64.to_le_bytes());
    // Version 1, relative to the field, no index.
    put(tables as usize, &[1, 0x1b, 0xff, 0xff]);
    put(
        tables as usize + 4,
        &(eh_frame - (tables as i32 + 4)).to_le_bytes(),
    );
    page
}

#[test]
fn only_images_with_tables_inside_of_them_are_modules() {
    let module = |page: &[u8]| {
        let start = page.as_ptr() as u64;
        let code = CodeMapping { start, offset: 0 };
        // SAFETY: a readable page, all of whose segments lie in it; it outlives the module.
        unsafe { module_from_image(start, 4096, code, LookupPc::new(start, PcKind::Exact)) }
    };
    let good = page(1024, 1040);
    let found = module(&good).expect("it has tables");
    let base = good.as_ptr() as u64;
    assert_eq!(
        (found.start(), found.end(), found.load_bias()),
        (base, base + 2048, base)
    );
    assert_eq!(
        rule_for(&found, LookupPc::new(base, PcKind::Exact)),
        FrameRule::Unknown
    );

    assert_eq!(
        module(&page(3000, 1040)),
        None,
        "the header is outside of the segment"
    );
    assert_eq!(
        module(&page(1024, 3000)),
        None,
        "the tables are outside of the segment"
    );
    assert_eq!(
        module(&page(1024, -8)),
        None,
        "the tables are before the segment"
    );
    let refused = |at: usize, byte: u8, why: &str| {
        let mut bad = good.clone();
        bad[at] = byte;
        assert_eq!(module(&bad), None, "{why}");
    };
    refused(0, 0, "not an image");
    refused(18, 3, "of another processor");
    refused(56, 1, "no tables");
    refused(56, 255, "program headers beyond the page");
    refused(64, 0, "no segments");
    refused(68, 1, "not readable");
    refused(68, 4, "not executable");
    refused(1024, 2, "an unknown version of the tables");
}
