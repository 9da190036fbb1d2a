//! The executor of an exploration: threads that run programs, each in a world of its own.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::execution::{self, Setting};
use crate::executor::{Answer, Executor, Request, Want};
use crate::recording::Recorder;
use crate::view::Base;
use crate::world::World;

/// See the module's header.
pub struct Pool {
    jobs: Option<Sender<(u64, Request)>>,
    results: Receiver<(u64, Answer)>,
    threads: Vec<JoinHandle<()>>,
    next: u64,
    in_flight: usize,
}

impl Pool {
    /// A thread for each world.
    pub fn new(worlds: Vec<World>, setting: &Arc<Setting>) -> Pool {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let (tell, results) = channel();
        let mut threads = Vec::new();
        for mut world in worlds {
            let (queue, tell, setting) = (queue.clone(), tell.clone(), setting.clone());
            threads.push(std::thread::spawn(move || {
                loop {
                    // A panic of another worker is reported by its thread; the queue is still good.
                    let job = queue.lock().unwrap_or_else(|e| e.into_inner()).recv();
                    let Ok((id, request)) = job else { return };
                    let answer = perform(&setting, &mut world, request);
                    if tell.send((id, answer)).is_err() {
                        return;
                    }
                }
            }));
        }
        Pool {
            jobs: Some(jobs),
            results,
            threads,
            next: 0,
            in_flight: 0,
        }
    }
}

impl Executor for Pool {
    fn size(&self) -> usize {
        self.threads.len()
    }

    fn start(&mut self, request: Request) -> u64 {
        let id = self.next;
        self.next += 1;
        self.in_flight += 1;
        if let Some(jobs) = &self.jobs {
            // Fails only if all workers are gone, and then `is_broken` says so.
            let _ = jobs.send((id, request));
        }
        id
    }

    fn wait(&mut self, time: Duration) -> Option<(u64, Answer)> {
        let answer = self.results.recv_timeout(time).ok()?;
        self.in_flight -= 1;
        Some(answer)
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// A worker has ended before its time.
    fn is_broken(&self) -> bool {
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

fn perform(setting: &Setting, world: &mut World, request: Request) -> Answer {
    match &request.want {
        Want::Outcome {
            acknowledged,
            detail,
        } => {
            let execution = execution::execute(
                setting,
                &request.program,
                request.schedule.layout,
                world,
                &request.image,
                acknowledged,
                *detail,
            );
            Answer::Executed(execution.map(Box::new))
        }
        Want::Recording(options) => {
            let base = Base::Crashed(request.image.clone());
            let recorder = Recorder::on(*options, base, &request.image.files);
            let recorded = execution::record(
                setting,
                &request.program,
                request.schedule.layout,
                world,
                &request.image,
                recorder,
            );
            Answer::Recorded(recorded.map(|(recorder, _)| Box::new(recorder.finish())))
        }
        Want::After(then) => {
            let execution = execution::refer(
                setting,
                &request.program,
                then,
                request.schedule.layout,
                world,
                &request.image,
            );
            Answer::Executed(execution.map(Box::new))
        }
    }
}
