//! Threads that run recoveries, each in a world of its own.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use brownout_host::LaunchError;
use brownout_trace::event::FileId;

use crate::execution::{self, Acknowledged, Command, Execution, Setting};
use crate::recording::{RecordOptions, Recorder, Recording, TrackedFile};
use crate::view::{Base, Image};
use crate::world::{Origin, World};

/// Something to do.
pub enum Work {
    /// Run the recovery on the image.
    Recover {
        image: Image,
        acknowledged: Acknowledged,
        detail: bool,
    },
    /// Run the recovery on the image and record what it does.
    Record {
        image: Image,
        options: RecordOptions,
    },
    /// Run a command on the image, then the recovery on what it leaves.
    Refer { image: Image, first: Command },
}

/// What came of it.
pub enum Done {
    Recovered(Result<Box<Execution>, LaunchError>),
    Recorded(Result<Box<Recording>, LaunchError>),
}

/// See the module's header.
pub struct Pool {
    jobs: Option<Sender<(u64, Work)>>,
    results: Receiver<(u64, Done)>,
    threads: Vec<JoinHandle<()>>,
    next: u64,
    pub in_flight: usize,
}

impl Pool {
    /// `size` threads, with a world each.
    pub fn new(
        size: usize,
        origin: &Origin,
        files: &BTreeMap<FileId, TrackedFile>,
        setting: &Arc<Setting>,
    ) -> std::io::Result<Pool> {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let (tell, results) = channel();
        let mut threads = Vec::new();
        for _ in 0..size {
            let mut world = World::new(origin, files)?;
            let (queue, tell, setting) = (queue.clone(), tell.clone(), setting.clone());
            threads.push(std::thread::spawn(move || {
                loop {
                    // A panic of another worker is reported by its thread; the queue is still good.
                    let job = queue.lock().unwrap_or_else(|e| e.into_inner()).recv();
                    let Ok((id, work)) = job else { return };
                    let done = perform(&setting, &mut world, work);
                    if tell.send((id, done)).is_err() {
                        return;
                    }
                }
            }));
        }
        Ok(Pool {
            jobs: Some(jobs),
            results,
            threads,
            next: 0,
            in_flight: 0,
        })
    }

    /// How many can run at once.
    pub fn size(&self) -> usize {
        self.threads.len()
    }

    /// Starts something; the number names it in the result.
    pub fn start(&mut self, work: Work) -> u64 {
        let id = self.next;
        self.next += 1;
        self.in_flight += 1;
        if let Some(jobs) = &self.jobs {
            // Fails only if all workers are gone, and then `wait` says so.
            let _ = jobs.send((id, work));
        }
        id
    }

    /// The next result, if there is one within the time.
    pub fn wait(&mut self, time: std::time::Duration) -> Option<(u64, Done)> {
        let result = self.results.recv_timeout(time).ok()?;
        self.in_flight -= 1;
        Some(result)
    }

    /// Whether a worker has ended before its time.
    pub fn is_broken(&self) -> bool {
        self.threads.iter().any(|thread| thread.is_finished())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

fn perform(setting: &Setting, world: &mut World, work: Work) -> Done {
    match work {
        Work::Recover {
            image,
            acknowledged,
            detail,
        } => {
            let execution = execution::execute(setting, world, &image, &acknowledged, detail);
            Done::Recovered(execution.map(Box::new))
        }
        Work::Record { image, options } => {
            let base = Base::Crashed(image.clone());
            let recorder = Recorder::on(options, base, &image.files);
            let recorded = execution::record(setting, &setting.recover, world, &image, recorder);
            Done::Recorded(recorded.map(|(recorder, _)| Box::new(recorder.finish())))
        }
        Work::Refer { image, first } => {
            Done::Recovered(execution::refer(setting, &first, world, &image).map(Box::new))
        }
    }
}
