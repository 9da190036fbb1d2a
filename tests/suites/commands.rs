//! Real commands from Debian's packages, one row a test.
//!
//! A command may print only what is the same on every run and in every folder: no process numbers,
//! times, addresses or path names of the working folder.

/// One command line for `sh -c`.
pub struct Row {
    /// Name of the test.
    pub name: &'static str,
    /// Files put into the fresh working folder first.
    pub files: &'static [(&'static str, &'static str)],
    /// The command.
    pub command: &'static str,
    /// Whether stderr must agree, too.
    pub stderr: bool,
}

const fn row(name: &'static str, command: &'static str) -> Row {
    Row {
        name,
        files: &[],
        command,
        stderr: true,
    }
}

const fn with(
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    command: &'static str,
) -> Row {
    Row {
        name,
        files,
        command,
        stderr: true,
    }
}

const fn stdout_only(
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    command: &'static str,
) -> Row {
    Row {
        name,
        files,
        command,
        stderr: false,
    }
}

const C_PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
struct node { struct node *left, *right; int key; };
static struct node *insert(struct node *n, int key) {
    if (!n) { n = calloc(1, sizeof *n); n->key = key; return n; }
    if (key < n->key) n->left = insert(n->left, key); else n->right = insert(n->right, key);
    return n;
}
static long sum(struct node *n) { return n ? sum(n->left) + n->key + sum(n->right) : 0; }
int main(int argc, char **argv) {
    struct node *root = 0;
    unsigned seed = 1;
    for (int i = 0; i < 5000; i++) { seed = seed * 1103515245 + 12345; root = insert(root, seed >> 16); }
    printf("%ld %.6f %d %s\n", sum(root), sin(1.0), argc, argc > 1 ? argv[1] : "-");
    return 3;
}
"#;

const CPP_PROGRAM: &str = r#"
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
int main() {
    std::map<std::string, int> words;
    std::string text = "the quick brown fox jumps over the lazy dog the end";
    std::regex word("[a-z]+");
    for (std::sregex_iterator i(text.begin(), text.end(), word), e; i != e; ++i) words[i->str()]++;
    for (auto &w : words) std::cout << w.first << ' ' << w.second << '\n';
    std::vector<long> v(100000);
    std::vector<std::thread> t;
    for (int k = 0; k < 4; k++)
        t.emplace_back([&v, k] { for (size_t i = k; i < v.size(); i += 4) v[i] = (i * 7919) % 10007; });
    for (auto &x : t) x.join();
    std::sort(v.begin(), v.end());
    std::cout << v[12345] << '\n';
    try { throw std::runtime_error("thrown"); } catch (const std::exception &e) { std::cout << e.what() << '\n'; }
    return 0;
}
"#;

const RUST_PROGRAM: &str = r#"
use std::collections::BTreeMap;
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
fn main() {
    let (tx, rx) = mpsc::channel();
    let shared = Arc::new(Mutex::new(BTreeMap::new()));
    let handles: Vec<_> = (0..4u64).map(|t| {
        let (tx, shared) = (tx.clone(), shared.clone());
        thread::spawn(move || {
            for i in 0..1000u64 { shared.lock().unwrap().insert(t * 1000 + i, i * i); }
            tx.send(t).unwrap();
        })
    }).collect();
    drop(tx);
    let total: u64 = rx.iter().sum();
    for handle in handles { handle.join().unwrap(); }
    println!("{total} {}", shared.lock().unwrap().values().sum::<u64>());
    let caught = std::panic::catch_unwind(|| { let v: Vec<i32> = Vec::new(); v[0] });
    println!("{}", caught.is_err());
    std::process::exit(4);
}
"#;

const PY_THREADS: &str = r#"
import threading, queue
q, out, lock = queue.Queue(), [], threading.Lock()
def work():
    while True:
        n = q.get()
        if n is None: return
        with lock: out.append(sum(i * i for i in range(n)))
ts = [threading.Thread(target=work) for _ in range(8)]
for t in ts: t.start()
for n in range(400): q.put(n)
for t in ts: q.put(None)
for t in ts: t.join()
e, b = threading.Event(), threading.Barrier(5)
hits = []
def waiter(i):
    b.wait(); e.wait(); hits.append(i)
ts = [threading.Thread(target=waiter, args=(i,)) for i in range(4)]
for t in ts: t.start()
b.wait(); e.set()
for t in ts: t.join()
print(sum(out), sorted(hits))
"#;

const PY_SUBPROCESS: &str = r#"
import subprocess, sys, os, signal
print(subprocess.run(["echo", "hi"], capture_output=True).stdout)
p = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(len(p.communicate(b"x" * 300000)[0]))
print(subprocess.run("exit 5", shell=True).returncode)
print(subprocess.run(["sh", "-c", "kill -15 $$"]).returncode)
try: subprocess.run(["/no/such/program"])
except FileNotFoundError as e: print(e.errno)
try: subprocess.run(["sleep", "20"], timeout=0.2)
except subprocess.TimeoutExpired: print("timeout")
r = subprocess.run([sys.executable, "-c", "import os; print(os.environ['A'], os.getcwd())"], env={"A": "b"}, cwd="/", capture_output=True, text=True)
print(r.stdout)
pid = os.fork()
if pid == 0: os._exit(7)
print(os.waitpid(pid, 0)[1])
"#;

const PY_MULTIPROCESSING: &str = r#"
import multiprocessing as mp
def square(x): return x * x
def child(conn, value):
    with value.get_lock(): value.value += 5
    conn.send([1, 2, {"a": "b"}]); conn.close()
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        ctx = mp.get_context(method)
        with ctx.Pool(3) as pool: print(method, pool.map(square, range(10)))
        a, b = ctx.Pipe(); v = ctx.Value("i", 1)
        p = ctx.Process(target=child, args=(b, v)); p.start()
        print(a.recv()); p.join(); print(p.exitcode, v.value)
"#;

const PY_ASYNCIO: &str = r#"
import asyncio, signal, os
async def tick(n):
    await asyncio.sleep(0.001 * n); return n * n
async def serve():
    async def handle(r, w):
        data = await r.readline(); w.write(data.upper()); await w.drain(); w.close()
    s = await asyncio.start_unix_server(handle, path="s.sock")
    async with s:
        r, w = await asyncio.open_unix_connection("s.sock")
        w.write(b"hello\n"); print(await r.readline()); w.close()
async def main():
    print(await asyncio.gather(*(tick(n) for n in range(20))))
    await serve()
    p = await asyncio.create_subprocess_exec("sh", "-c", "cat; exit 3", stdin=-1, stdout=-1)
    print(await p.communicate(b"to child"), p.returncode)
    got = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, got.set)
    os.kill(os.getpid(), signal.SIGUSR1); await got.wait(); print("signal")
    print(await asyncio.get_running_loop().run_in_executor(None, sum, range(1000)))
asyncio.run(main())
"#;

const PY_CTYPES: &str = r#"
import ctypes, ctypes.util
libc = ctypes.CDLL(None)
print(libc.strlen(b"hello"), libc.abs(-5))
CMP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
arr = (ctypes.c_int * 8)(5, 3, 8, 1, 9, 2, 7, 4)
libc.qsort(arr, 8, 4, CMP(lambda a, b: a[0] - b[0]))
print(list(arr))
m = ctypes.CDLL(ctypes.util.find_library("m")); m.pow.restype = ctypes.c_double; m.pow.argtypes = [ctypes.c_double] * 2
print(m.pow(2.0, 0.5))
class S(ctypes.Structure): _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_double)]
print(S(1, 2.5).b, ctypes.sizeof(S))
"#;

const PY_TEXT: &str = r#"
import json, re, random, hashlib, decimal, collections, struct, zlib, math
random.seed(7)
data = {str(i): [random.random() for _ in range(20)] for i in range(300)}
s = json.dumps(data, sort_keys=True)
print(hashlib.sha256(s.encode()).hexdigest(), json.loads(s) == data)
text = " ".join(random.choice(["alpha", "beta", "gamma1", "delta22"]) for _ in range(20000))
print(collections.Counter(re.findall(r"\b([a-z]+)(\d*)\b", text)).most_common())
print(re.sub(r"(?<=a)l(?=p)", "L", text)[:60])
decimal.getcontext().prec = 60
print(decimal.Decimal(2).sqrt(), zlib.crc32(text.encode()), struct.pack("<dI", math.pi, 7).hex())
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(21), sum(x for x in (i ** 3 % 7 for i in range(50000))))
"#;

const PY_SIGNALS: &str = r#"
import signal, time, os, threading
hits = []
signal.signal(signal.SIGALRM, lambda s, f: hits.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
end = time.monotonic() + 0.5
x = 0
while time.monotonic() < end or len(hits) < 20: x = (x * 3 + 1) % 1000003
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(hits) >= 20)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigwait([signal.SIGUSR1]))
try: raise KeyboardInterrupt
except KeyboardInterrupt: print("ki")
os.kill(os.getpid(), signal.SIGTERM)
"#;

const PERL: &str = r#"
use strict; use warnings; use Storable qw(dclone); use List::Util qw(sum shuffle);
my %h; $h{$_ % 97} .= chr(65 + $_ % 26) for 1 .. 20000;
print join(",", map { "$_=" . length $h{$_} } (sort { $a <=> $b } keys %h)[0 .. 5]), "\n";
my $t = "The year 1999 and 2024, also 1066." x 50; my @y = $t =~ /\b(\d{4})\b/g; print scalar(@y), " ", sum(@y), "\n";
local $SIG{ALRM} = sub { die "alarm\n" }; eval { alarm 1; select undef, undef, undef, 5; }; print $@;
my $pid = fork; if (!$pid) { exit 9 } waitpid $pid, 0; print $? >> 8, "\n";
open my $p, "-|", "echo from child; exit 2" or die; print <$p>; close $p; print $? >> 8, "\n";
my $d = dclone({ a => [1, 2, { b => 3 }] }); print $d->{a}[2]{b}, "\n";
printf "%.10f %s\n", atan2(1, 1) * 4, scalar reverse "abc"; exit 6;
"#;

const NODE_JIT: &str = r#"
function mix(a, n) { let h = 0; for (let i = 0; i < n; i++) { h = (h * 31 + a[i % a.length]) | 0; } return h; }
const a = Array.from({ length: 1000 }, (_, i) => i * 7); let t = 0;
for (let r = 0; r < 300; r++) t ^= mix(a, 20000);
class P { constructor(x) { this.x = x; } get d() { return this.x * 2; } } class Q extends P { get d() { return super.d + 1; } }
let s = 0; for (let i = 0; i < 300000; i++) { s += (i % 3 ? new P(i) : new Q(i)).d; }
const m = new Map(); for (let i = 0; i < 50000; i++) m.set("k" + (i % 500), (m.get("k" + (i % 500)) || 0) + i);
function deopt(x) { return x + x; } for (let i = 0; i < 50000; i++) deopt(i); console.log(deopt("s"), deopt({}));
console.log(t, s, m.get("k7"), "aXbXc".replace(/X/g, "-"), [5, 1, 4].sort(), eval("1+2"), new Function("a", "return a*3")(5));
"#;

const NODE_WORKERS: &str = r#"
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
if (isMainThread) {
  const sab = new SharedArrayBuffer(8); let done = 0, out = [];
  for (let i = 0; i < 4; i++) new Worker(__filename, { workerData: { i, sab } })
    .on("message", (v) => out.push(v)).on("exit", (c) => { if (++done == 4) console.log(out.sort(), new Int32Array(sab)[0], c); });
} else {
  const v = new Int32Array(workerData.sab); for (let k = 0; k < 10000; k++) Atomics.add(v, 0, 1);
  let f = (n) => n < 2 ? n : f(n - 1) + f(n - 2); parentPort.postMessage(workerData.i + ":" + f(20));
}
"#;

const NODE_CHILD: &str = r#"
const cp = require("child_process"), fs = require("fs"), zlib = require("zlib"), crypto = require("crypto");
console.log(cp.execSync("echo hi; exit 0").toString().trim(), cp.spawnSync("sh", ["-c", "exit 3"]).status);
const c = cp.spawn("cat"); let s = ""; c.stdout.on("data", (d) => s += d); c.on("close", (code) => {
  console.log(s.length, code);
  fs.writeFileSync("f", "x".repeat(100000)); fs.readFile("f", (e, d) => {
    zlib.gzip(d, (e, z) => console.log(zlib.gunzipSync(z).length, crypto.createHash("sha1").update(d).digest("hex")));
  });
}); c.stdin.end("y".repeat(200000));
setTimeout(() => console.log("timer"), 500); process.on("exit", (c) => console.log("exit", c)); process.exitCode = 5;
"#;

const NODE_WASM: &str = r#"
const b = new Uint8Array([0,97,115,109,1,0,0,0,1,6,1,96,1,127,1,127,3,2,1,0,7,5,1,1,102,0,0,10,30,1,28,0,32,0,65,2,72,4,127,32,0,5,32,0,65,1,107,16,0,32,0,65,2,107,16,0,106,11,11]);
const f = new WebAssembly.Instance(new WebAssembly.Module(b)).exports.f; console.log(f(25));
"#;

const JAVA: &str = r#"
import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
public class T {
    static long fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    public static void main(String[] a) throws Exception {
        ExecutorService e = Executors.newFixedThreadPool(4); List<Future<Long>> fs = new ArrayList<>();
        for (int i = 20; i < 28; i++) { int n = i; fs.add(e.submit(() -> fib(n))); }
        for (Future<Long> f : fs) System.out.println(f.get()); e.shutdown();
        System.out.println(IntStream.range(0, 100000).parallel().mapToLong(x -> (long) x * x % 7).sum());
        try { Object o = null; o.hashCode(); } catch (NullPointerException x) { System.out.println("npe"); }
        try { deep(0); } catch (StackOverflowError x) { System.out.println("soe"); }
        StringBuilder s = new StringBuilder(); for (int i = 0; i < 200000; i++) { s.append(i % 10); } System.out.println(s.toString().hashCode());
        System.exit(7);
    }
    static int deep(int n) { return deep(n + 1) + 1; }
}
"#;

const LUA: &str = r#"
local ffi = require("ffi"); ffi.cdef[[int abs(int); typedef struct { int x; double y; } pt;]]
local t = 0; for i = 1, 5000000 do t = (t * 3 + i) % 1000003 end; print(t, ffi.C.abs(-4))
local a = ffi.new("pt[100]"); for r = 1, 5000 do for i = 0, 99 do a[i].x = a[i].x + i; a[i].y = a[i].y + 0.5 end end; print(a[7].x, a[7].y)
local co = coroutine.wrap(function() for i = 1, 1000 do coroutine.yield(i) end return -1 end); local s = 0; for i = 1, 1000 do s = s + co() end; print(s)
print(pcall(error, "x"), ("abc"):rep(3):gsub("b", "B"), select('#', unpack({1, 2, 3})))
local fib; fib = function(n) return n < 2 and n or fib(n - 1) + fib(n - 2) end; print(fib(25))
"#;

const SQL: &str = r#"
create table t(id integer primary key, k text, v real); create index tk on t(k);
begin; with recursive c(n) as (select 1 union all select n + 1 from c where n < 30000)
insert into t select n, 'k' || (n * 7919 % 1000), n * 1.5 from c; commit;
select count(*), sum(v), max(k) from t; select k, count(*), avg(v) from t group by k order by 2 desc, 1 limit 5;
update t set v = v * 2 where k like 'k1%'; delete from t where id % 3 = 0; select count(*), round(sum(v), 3) from t;
select a.k, b.id from t a join t b on a.id = b.id + 1 where a.k < 'k100' order by 1, 2 limit 5;
pragma integrity_check; vacuum; select group_concat(x) from (select distinct substr(k, 2, 1) x from t order by 1);
select json_extract('{"a":[1,2,{"b":5}]}', '$.a[2].b'), hex(zeroblob(4)), printf('%05d', 42);
"#;

const MEMCACHED_CLIENT: &str = r#"
import socket, time, sys
s = socket.socket(socket.AF_UNIX)
for i in range(400):
    try: s.connect("m.sock"); break
    except OSError: time.sleep(0.05)
f = s.makefile("rwb")
def cmd(*lines):
    for l in lines: f.write(l + b"\r\n")
    f.flush()
for i in range(500):
    cmd(b"set k%d 0 0 %d" % (i, 100 + i), b"v" * (100 + i)); assert f.readline() == b"STORED\r\n"
total = 0
for i in range(500):
    cmd(b"get k%d" % i); h = f.readline(); total += len(f.readline()) - 2; assert f.readline() == b"END\r\n"
print(total)
cmd(b"set n 0 0 1", b"5"); f.readline(); cmd(b"incr n 37"); print(f.readline()); cmd(b"delete n"); print(f.readline())
"#;

const MAKEFILE: &str = "
all: prog lib.a
\t./prog x; test $$? -eq 3
%.o: %.c
\t$(CC) -O1 -c -o $@ $<
prog: main.o
\t$(CC) -o $@ $^ -lm
lib.a: main.o
\tar rcD $@ $^ && ar t $@
";

const GDB_PROGRAM: &str = r#"
#include <stdio.h>
struct pair { int a; double b; };
static int twice(struct pair *p, int n) {
    p->a += n;
    return p->a * 2;
}
int main(void) {
    struct pair p = {5, 2.5};
    int r = 0;
    for (int i = 0; i < 3; i++)
        r += twice(&p, i);
    printf("%d\n", r);
    return r & 0x7f;
}
"#;

const ASM_PROGRAM: &str = "
.globl _start
_start:
    mov $1, %eax
    mov $1, %edi
    lea text(%rip), %rsi
    mov $6, %edx
    syscall
    mov $60, %eax
    mov $9, %edi
    syscall
.data
text: .ascii \"hello\\n\"
";

const BASH: &str = r#"
set -o pipefail
trap 'echo exit $?' EXIT; trap 'echo usr1' USR1; trap 'echo err $LINENO' ERR
kill -USR1 $$; false; x=$( (echo a; echo b >&2; echo c) 2>&1 | sort -r | tr '\n' ' '); echo "$x"
for i in {1..5}; do ( echo $((i * i)) ) & done | sort -n; wait
coproc CAT { cat; }; echo coproc >&"${CAT[1]}"; read -r l <&"${CAT[0]}"; echo "$l"; exec {CAT[1]}>&-
diff <(seq 5) <(seq 2 6); declare -A m=([a]=1 [b]=2); echo "${m[b]} ${#m[@]} ${BASH_VERSINFO[0]}"
f() { local n=$1; ((n < 2)) && { echo "$n"; return; }; echo $(( $(f $((n - 1))) + $(f $((n - 2))) )); }; f 8
yes | head -3 | wc -l; echo ${PIPESTATUS[*]}; [[ abc123 =~ ([a-z]+)([0-9]+) ]] && echo "${BASH_REMATCH[2]}"
(exit 3) || echo "sub $?"; timeout 0.2 sleep 5; echo "t $?"; read -t 0.1 < <(sleep 3); echo "r $?"; exit 11
"#;

const DASH: &str = r#"
set -e; trap 'echo bye' 0; i=0; while [ $i -lt 200 ]; do i=$((i+1)); v=$(echo $i); done; echo $v
f() { cat <<X
here $1
X
}; f doc; (exit 5) || echo $?; sleep 0.1 & wait $!; echo $?; umask; echo $(( 0x10 + 010 )); exit 8
"#;

/// The table.
pub const ROWS: &[Row] = &[
    with("python-threads", &[("t.py", PY_THREADS)], "python3 t.py"),
    with(
        "python-subprocess",
        &[("t.py", PY_SUBPROCESS)],
        "python3 t.py",
    ),
    with(
        "python-multiprocessing",
        &[("t.py", PY_MULTIPROCESSING)],
        "python3 t.py",
    ),
    with("python-asyncio", &[("t.py", PY_ASYNCIO)], "python3 t.py"),
    with("python-ctypes", &[("t.py", PY_CTYPES)], "python3 t.py"),
    with("python-json-re", &[("t.py", PY_TEXT)], "python3 t.py"),
    with("python-signals", &[("t.py", PY_SIGNALS)], "python3 t.py"),
    with("perl", &[("t.pl", PERL)], "perl t.pl"),
    with("node-jit", &[("t.js", NODE_JIT)], "node t.js"),
    with("node-workers", &[("t.js", NODE_WORKERS)], "node t.js"),
    with("node-child-process", &[("t.js", NODE_CHILD)], "node t.js"),
    with("node-wasm", &[("t.js", NODE_WASM)], "node t.js"),
    with(
        "luajit",
        &[("t.lua", LUA)],
        "luajit t.lua; luajit -joff t.lua",
    ),
    with(
        "luajit-bytecode",
        &[("t.lua", LUA)],
        "luajit -b t.lua t.bc && luajit t.bc | md5sum",
    ),
    with("java", &[("T.java", JAVA)], "java -Xmx256m T.java"),
    with(
        "java-interpreter",
        &[("T.java", JAVA)],
        "java -Xint -Xmx256m T.java",
    ),
    row("java-version", "java -version"),
    with(
        "sqlite3",
        &[("t.sql", SQL)],
        "sqlite3 t.db < t.sql; sqlite3 -json t.db 'select * from t limit 2'",
    ),
    with(
        "gcc-compile-and-run",
        &[("main.c", C_PROGRAM)],
        "gcc -O2 -g main.c -o prog -lm && ./prog arg; echo $?",
    ),
    with(
        "gcc-stages",
        &[("main.c", C_PROGRAM)],
        "gcc -E main.c | grep -v '^#' | md5sum; gcc -O3 -S main.c -o - | md5sum; gcc -c main.c && nm main.o",
    ),
    with(
        "gcc-error",
        &[("main.c", "int main(void) { return undeclared; }\n")],
        "gcc -c main.c",
    ),
    with(
        "gcc-static",
        &[("main.c", C_PROGRAM)],
        "gcc -O1 -static main.c -o prog -lm && ./prog a b; echo $?",
    ),
    with(
        "gcc-lto",
        &[("main.c", C_PROGRAM)],
        "gcc -O2 -flto main.c -o prog -lm && ./prog; echo $?",
    ),
    with(
        "g++-compile-and-run",
        &[("t.cpp", CPP_PROGRAM)],
        "g++ -std=c++17 -O1 t.cpp -o t -pthread && ./t",
    ),
    stdout_only(
        "rustc-compile-and-run",
        &[("t.rs", RUST_PROGRAM)],
        "rustc -O t.rs -o t && ./t; echo $?",
    ),
    with(
        "as-ld",
        &[("t.s", ASM_PROGRAM)],
        "as t.s -o t.o && ld t.o -o t && ./t; echo $?; strip t && ./t; size -A t | head -4",
    ),
    with(
        "objdump",
        &[("main.c", C_PROGRAM)],
        "gcc -O2 -c main.c && objdump -d main.o && readelf -SW main.o",
    ),
    with(
        "make",
        &[("Makefile", MAKEFILE), ("main.c", C_PROGRAM)],
        "make -j2 --output-sync=target 2>&1 | sort; make -n",
    ),
    stdout_only(
        "gdb-batch",
        &[("t.c", GDB_PROGRAM)],
        "gcc -g -O0 t.c -o t && gdb -nx -batch -ex 'break twice' -ex run -ex bt -ex 'print *p' -ex finish -ex 'delete 1' -ex continue ./t 2>/dev/null | grep -v -e '^\\[' -e '^Using host'",
    ),
    with(
        "gdb-static",
        &[("t.c", GDB_PROGRAM)],
        "gcc -g -O2 t.c -o t && gdb -nx -batch -ex 'info line main' -ex 'disassemble twice' -ex 'ptype struct pair' -ex 'python print(6*7)' ./t",
    ),
    row(
        "git",
        "git init -q -b main r && cd r && for i in 1 2 3 4 5; do seq $i 200 > f$i; git add . && git commit -qm \"c$i\"; done; git checkout -qb side HEAD~2 && echo x > y && git add y && git commit -qm side && git checkout -q main && git merge -q -m m side && git log --oneline --graph && git gc -q && git fsck --full && git diff HEAD~1 --stat && git blame f2 | tail -1 && git show --stat HEAD~1 && git rev-parse HEAD",
    ),
    row(
        "git-clone",
        "git init -q -b main a && cd a && seq 9999 > f && git add f && git commit -qm 1 && cd .. && git clone -q a b && git -C b log --format=%H && git -C b archive HEAD | tar t",
    ),
    row(
        "openssl-dgst",
        "seq 200000 > f; for a in md5 sha1 sha256 sha512 sha3-256 blake2b512; do openssl dgst -$a f; done",
    ),
    row(
        "openssl-enc",
        "seq 100000 > f; openssl enc -aes-256-cbc -pbkdf2 -S 0011223344556677 -k pw -in f -out e && openssl enc -d -aes-256-cbc -pbkdf2 -k pw -in e | cmp - f && openssl enc -chacha20 -K 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff -iv 00112233445566778899aabbccddeeff -in f | openssl dgst -sha256; openssl prime 1000003; openssl rand -hex 4 | wc -c",
    ),
    row(
        "gzip",
        "seq 300000 > f; gzip -n9 < f | md5sum; gzip -1c f > f.gz && gunzip -c f.gz | cmp - f && zgrep -c 77 f.gz; gzip -t f.gz; echo junk | gunzip; echo $?",
    ),
    row(
        "xz-threads",
        "seq 200000 > f; xz -T2 --block-size=300KiB -k f && xz -l --robot f.xz | grep -c block; xz -dc -T2 f.xz | md5sum; xz -t f.xz",
    ),
    row(
        "bzip2",
        "seq 100000 | bzip2 | tee b | md5sum; bunzip2 < b | md5sum",
    ),
    row(
        "zstd",
        "seq 200000 > f; zstd -q -T2 -3 f -o f.zst && zstd -q -dc f.zst | cmp - f && zstd -q --train -B1K f -o d 2>/dev/null; echo $?; md5sum < f.zst",
    ),
    row(
        "tar-pipeline",
        "mkdir d && for i in $(seq 60); do seq $i > d/f$i; done; tar --sort=name --mtime=@0 --owner=0 --group=0 -cf - d | tee t.tar | gzip -n | md5sum; mkdir o && tar -xf t.tar -C o && diff -r d o/d && tar -tvf t.tar --numeric-owner | tail -2",
    ),
    row(
        "mawk",
        "seq 50000 | mawk '{ s += $1 * sqrt($1); c[$1 % 13]++ } END { printf \"%.6f\\n\", s; for (i = 0; i < 13; i++) print i, c[i] }'",
    ),
    row(
        "gawk",
        "seq 50000 | gawk 'BEGIN { srand(3) } { a[$1 % 101] = a[$1 % 101] + rand(); if (match($1, /([0-9])7([0-9])/, m)) n += m[2] } END { asorti(a, k); printf \"%.9f %d %s\\n\", a[7], n, k[3]; \"echo sub\" | getline x; print x; print toupper(substr(\"hello\", 2)), strftime(\"%Y\", 0, 1) }'",
    ),
    row(
        "sed",
        "seq 3000 | sed -n -E 's/(.)(.)/\\2\\1/; /7/{ h; G; s/\\n/+/; p }' | tail -20; seq 10 | sed -e '3,5d;$!N;P;D'",
    ),
    row(
        "sort-parallel",
        "seq 200000 | awk '{ print ($1 * 7919) % 200003, $1 }' > f; sort --parallel=4 -S 2M -k1,1n f | md5sum; sort -u -R --random-source=f f | wc -l; sort -rn f | head -3",
    ),
    row(
        "coreutils",
        "seq 5000 | shuf --random-source=/usr/bin/sort | paste - - - | cut -f2 | tac | uniq -c | tr -s ' ' | join -o 1.2 - /dev/null; seq 20 | split -l 7 - p. && ls p.* && cat p.* | factor | tail -2; numfmt --to=iec 123456789; date -d @1e9 -u +%F; stat -c %s p.aa; od -An -tx1 p.aa | head -2; sha256sum p.ab; expr 6 \\* 7; printf '%s\\n' $(( 1 << 40 ))",
    ),
    with("bash", &[("t.sh", BASH)], "bash t.sh 2>&1"),
    with("dash", &[("t.sh", DASH)], "dash t.sh"),
    row(
        "pipeline",
        "seq 100000 | grep -E '(1|3)5' | tee t | wc -l; cmp -s t /dev/null; yes abc | head -c 1000000 | md5sum; cat /dev/zero | head -c 3000000 | tr '\\0' x | fold | sha1sum",
    ),
    row(
        "find",
        "mkdir -p a/b/c a/d && touch a/b/x a/d/y.c a/b/c/z.c && find a -name '*.c' -newermt 1990-01-01 -printf '%p %s\\n' | sort; find a -type f -exec sh -c 'echo \"$0\" | tr a-z A-Z' {} \\; | sort; find a -depth -delete; ls",
    ),
    row(
        "xargs-parallel",
        "seq 200 | xargs -P 8 -n 5 sh -c 'echo $(( $1 * $2 ))' x | sort -n | md5sum; seq 3 | xargs -I{} sh -c 'exit {}'; echo $?",
    ),
    row(
        "env-clear",
        "env -i A=b sh -c 'env | grep -v ^PWD= | sort'; env -i /bin/echo x; env -u HOME sh -c 'echo ${HOME-unset}'; env no-such-command; echo $?",
    ),
    row(
        "timeout",
        "timeout 0.3 sleep 9; echo $?; timeout -s KILL 0.3 sh -c 'while :; do :; done'; echo $?; timeout 5 true; echo $?; timeout --preserve-status 0.2 sleep 9; echo $?",
    ),
    row("exit-status", "sh -c 'exit 42'"),
    row("killed", "kill -SEGV $$"),
    row("not-found", "/no/such/program; echo $?; no-such-command"),
    row(
        "bc-dc",
        "echo 'scale=60; 4*a(1); 2^200; sqrt(2)' | bc -l; echo '5k 2 3 / p 10 ! p' | dc",
    ),
    row(
        "diff-patch",
        "seq 30 > a; sed 's/7/seven/' a > b; diff -u --label a --label b a b; diff a b > p; patch -s a p && cmp a b; comm -3 a b | wc -l; cmp a /dev/null; echo $?",
    ),
    stdout_only(
        "redis",
        &[],
        "redis-server --port 0 --unixsocket r.sock --save '' --appendonly no --logfile log & p=$!; for i in $(seq 200); do redis-cli -s r.sock ping 2>/dev/null | grep -q PONG && break; sleep 0.05; done; redis-benchmark -s r.sock -q -n 3000 -c 10 -t set,get,lpush,lrange_100 > /dev/null; echo benchmark $?; for i in 1 2 3; do redis-cli -s r.sock incrby n $i; done; redis-cli -s r.sock eval 'local s = 0; for i = 1, 100000 do s = s + i end; return s' 0; redis-cli -s r.sock hset h a 1 b 2; redis-cli -s r.sock hgetall h; redis-cli -s r.sock bgsave; sleep 0.5; redis-cli -s r.sock shutdown nosave; wait $p; echo server $?",
    ),
    stdout_only(
        "memcached",
        &[("client.py", MEMCACHED_CLIENT)],
        "memcached -u $(id -un) -s m.sock -t 4 -m 32 & p=$!; python3 client.py; echo client $?; kill $p; wait $p; echo server $?",
    ),
    row(
        "ldd-and-libs",
        "ldd /bin/true | grep -c libc; LD_PRELOAD=libm.so.6 /bin/echo preloaded; LD_BIND_NOW=1 /bin/echo now; /lib64/ld-linux-x86-64.so.2 /bin/echo direct",
    ),
    with(
        "script-interpreters",
        &[
            (
                "s.py",
                "#!/usr/bin/env python3\nimport sys; print(sys.argv[1:])\n",
            ),
            ("s.pl", "#!/usr/bin/perl -w\nprint \"@ARGV\\n\";\n"),
            ("s.sh", "echo no interpreter line \"$@\"\n"),
        ],
        "chmod +x s.*; ./s.py a b; ./s.pl c; ./s.sh d",
    ),
];
