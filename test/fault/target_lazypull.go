package fault

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/lazyfill"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

// A run pulls a version while a reader reads its disk, and has some of these faults, and of those of a faultyProxy.
const (
	lazyKill   = "process killed"
	lazyAgent  = "agent restarted"
	lazyReboot = "node rebooted"
	lazyFull   = "disk full"
)

const (
	lazyDiskSize = 32 << 20 // of which a quarter is zeros
	lazyRunTime  = 2 * time.Minute
	lazyVM       = "vm-1"
	longestDelay = 40 * time.Millisecond
)

// lazyStrikes are the faults at a random moment of a run. Each run begins with the next one.
var lazyStrikes = [...]string{lazyKill, lazyAgent, lazyReboot, registryAway}

// lazyRuns is how many runs there are for each kill.
const lazyRuns = len(lazyStrikes)

// lazyFaults are the faults that a run of the target has to meet.
var lazyFaults = []string{
	lazyKill, lazyAgent, lazyReboot, lazyFull, peerLies, registryAway, responseStatus, responseBit, responseCutShort,
}

// lazyVersion is what all runs pull.
type lazyVersion struct {
	order lazyfill.Order // without directories
	disk  string         // name of its file
	sum   string         // SHA-256 of the disk
	peer  *lyingPeer     // that the process reads from, too
}

// lazyPullTarget pulls a version many times while qemu-img reads its disk as a VM does, injects faults, and compares
// what was read, and the file that remains, with what was pushed.
func lazyPullTarget(ctx context.Context, s *scene) (r result, err error) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		return r, fmt.Errorf("%w: qemu-img is not installed", rig.ErrSkip)
	}
	proxy, err := newFaultyProxy(ctx, s.cloud.Registry, s.newRand())
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, proxy.close()) }()
	v, err := s.pushLazyDisk(ctx, proxy)
	if err != nil {
		return r, err
	}
	if v.peer, err = newLyingPeer(ctx, s.dir, proxy.count); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.peer.stop()) }()
	v.order.NodeID, v.order.PeerFile = lazyNode, v.peer.readerFile
	r = s.result()
	for i := range lazyRuns * s.planned {
		run := &lazyRun{scene: s, proxy: proxy, version: v, first: lazyStrikes[i%lazyRuns]}
		err := run.do(ctx, filepath.Join(s.dir, fmt.Sprint("run", i)))
		switch {
		case ctx.Err() != nil:
			return r, context.Cause(ctx)
		case errors.Is(err, errWrongBytes):
			r.Wrong++
		case err != nil:
			r.Stuck++
		default:
			r.Acknowledged++
		}
		if err != nil {
			r.Problems = append(r.Problems, fmt.Sprintf("run %d: %v", i, err))
		}
		if i%50 == 49 {
			s.say("%d runs, %d kills, %v", i+1, s.kills, proxy.faults())
		}
	}
	if err := s.fillSmallDisk(ctx, proxy, v); err != nil {
		r.Stuck++
		r.Problems = append(r.Problems, "full disk: "+err.Error())
	}
	r.Kills, r.Others, r.Faults, r.mustMeet = s.kills, s.others, proxy.faults(), lazyFaults
	return r, nil
}

// pushLazyDisk puts a template with a disk into the registry.
func (s *scene) pushLazyDisk(ctx context.Context, proxy *faultyProxy) (v lazyVersion, err error) {
	content := make([]byte, lazyDiskSize)
	for at := 0; at < len(content); at += 8 {
		if at>>20%4 != 3 {
			binary.LittleEndian.PutUint64(content[at:], s.rng.Uint64())
		}
	}
	sum := sha256.Sum256(content)
	disk := filepath.Join(s.dir, "lazy.img")
	if err := os.WriteFile(disk, content, 0o600); err != nil {
		return v, err
	}
	id, err := s.cloud.Push(ctx, "lazy", "import", disk, "--format", "raw", "--name", "lazy", "--cpu", "1", "--ram",
		"256M")
	if err != nil {
		return v, err
	}
	client, err := transfer.New(transfer.Options{BaseURL: s.cloud.Registry})
	if err != nil {
		return v, err
	}
	defer client.Close()
	m, err := client.Manifest(ctx, transfer.VersionRef{ID: id})
	if err != nil {
		return v, err
	}
	if len(m.Files) != 1 {
		return v, fmt.Errorf("the version has %d files, want one disk", len(m.Files))
	}
	return lazyVersion{
		order: lazyfill.Order{
			Registry: proxy.URL, TemplateID: id, ContentID: m.ContentID, SocketGroup: -1, MinBytes: 1,
		},
		disk: m.Files[0].Name, sum: hex.EncodeToString(sum[:]),
	}, nil
}

// errWrongBytes is the worst that can be found.
var errWrongBytes = errors.New("wrong bytes")

// lazyRun is one pull with its faults.
type lazyRun struct {
	*scene
	proxy   *faultyProxy
	version lazyVersion
	first   string // fault

	dir, sockets, processFile string
	order                     lazyfill.Order
	supervisor                *lazyfill.Supervisor
	stop                      func()
}

// do pulls below a directory, which is removed if all went well.
func (a *lazyRun) do(ctx context.Context, dir string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, lazyRunTime)
	defer cancel()
	damaged := a.rng.IntN(6)
	a.proxy.begin(time.Duration(a.rng.Int64N(int64(longestDelay))), damaged)
	if err := a.prepare(dir); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, a.finish(context.WithoutCancel(ctx), err == nil))
	}()
	a.supervise(ctx)
	if err := a.await(ctx, lazyfill.Serving); err != nil {
		return err
	}
	reader, err := a.read(ctx)
	if err != nil {
		return err
	}
	for _, fault := range a.drawFaults() {
		if reader, err = a.strike(ctx, fault, reader); err != nil {
			return err
		}
	}
	if err := reader.compare(a.version.sum); err != nil {
		return err
	}
	if err := a.await(ctx, lazyfill.Complete); err != nil {
		return err
	}
	return compareFile(filepath.Join(a.order.Dir, a.version.disk), a.version.sum)
}

// prepare makes the directories. That of the sockets has a short path: an address of a socket has about 100 bytes.
func (a *lazyRun) prepare(dir string) (err error) {
	a.dir, a.order = dir, a.version.order
	a.order.Dir, a.processFile = filepath.Join(dir, "version"), filepath.Join(dir, "pid.json")
	if err := os.MkdirAll(a.order.Dir, 0o700); err != nil {
		return err
	}
	a.sockets, err = os.MkdirTemp("", "lazy-")
	a.order.SocketDir = a.sockets
	return err
}

// supervise does what an agent does: it keeps the process running.
func (a *lazyRun) supervise(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	supervisor := lazyfill.NewSupervisor(lazyfill.SupervisorOptions{
		Dir: filepath.Join(a.dir, "fill"), Order: a.order,
		Program: lazyfill.Program{Path: a.Path("buildnode"), Args: []string{"fill"}, Env: os.Environ()},
		Token:   func(context.Context, string, bool) (string, error) { return "", nil },
		Peers: func(context.Context, []string) ([]api.Peer, error) {
			return a.version.peer.sources(a.order.ContentID), nil
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	go func() {
		defer close(ended)
		supervisor.Run(ctx)
	}()
	a.supervisor, a.stop = supervisor, func() {
		cancel()
		<-ended
	}
}

// await waits until the process is in a phase, or further.
func (a *lazyRun) await(ctx context.Context, phase lazyfill.Phase) error {
	for {
		state, err := a.supervisor.Next(ctx)
		switch {
		case err != nil:
			state = a.supervisor.State()
			return fmt.Errorf("waited for the phase %s, it is %s at %.0f %%: %s", phase, state.Phase,
				100*state.Progress, state.Problem)
		case state.Phase == lazyfill.Failed:
			return fmt.Errorf("the process has failed: %s", state.Error)
		case state.Phase == phase || state.Phase == lazyfill.Complete:
			return nil
		}
	}
}

// drawFaults draws the faults of the run, besides those of the proxy.
func (a *lazyRun) drawFaults() (list []string) {
	list = append(list, a.first)
	for range a.rng.IntN(3) {
		list = append(list, lazyStrikes[a.rng.IntN(len(lazyStrikes))])
	}
	return list
}

// strike does one fault at a random moment, and returns the reader that reads now.
func (a *lazyRun) strike(ctx context.Context, fault string, reader *diskReader) (*diskReader, error) {
	rig.Pause(ctx, a.between(0, 400*time.Millisecond))
	if fault != registryAway {
		a.proxy.count(fault)
	}
	switch fault {
	case lazyKill:
		return reader, a.killProcess()
	case lazyAgent:
		a.stop()
		a.supervise(ctx)
	case registryAway:
		a.proxy.setAway(true)
		rig.Pause(ctx, a.between(100*time.Millisecond, 2*time.Second))
		a.proxy.setAway(false)
	case lazyReboot: // of what was not synced, all is still there
		a.others++
		reader.kill()
		a.stop()
		if err := a.killProcess(); err != nil {
			return reader, err
		}
		a.supervise(ctx)
		if err := a.await(ctx, lazyfill.Serving); err != nil {
			return reader, err
		}
		return a.read(ctx)
	}
	return reader, nil
}

// killProcess ends the process that serves the disk, if it runs.
func (a *lazyRun) killProcess() error {
	pid := a.supervisor.State().PID
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	a.scene.kills++
	return nil
}

// finish ends the process and removes everything.
func (a *lazyRun) finish(ctx context.Context, good bool) error {
	if a.stop != nil {
		a.stop()
	}
	err := lazyfill.EndProcess(ctx, filepath.Join(a.dir, "fill"))
	if good {
		err = errors.Join(err, os.RemoveAll(a.dir))
	}
	return errors.Join(err, os.RemoveAll(a.sockets))
}

// diskReader is a qemu-img that reads a disk as QEMU does.
type diskReader struct {
	cmd  *exec.Cmd
	said strings.Builder
	to   string
}

// read begins to read the disk, in the place of a VM.
func (a *lazyRun) read(ctx context.Context) (*diskReader, error) {
	if err := os.Remove(a.processFile); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	sockets, err := a.supervisor.Serve(ctx, lazyVM, a.processFile)
	if err != nil {
		return nil, err
	}
	r := &diskReader{to: filepath.Join(a.dir, "copy.img")}
	r.cmd = exec.CommandContext(ctx, "qemu-img", "convert", "-W", "-m", "4", "--image-opts", "-O", "raw",
		"driver=nbd,server.type=unix,server.path="+sockets[a.version.disk]+",reconnect-delay=60,open-timeout=30", r.to)
	r.cmd.Stderr = &r.said
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(map[string]int{"pid": r.cmd.Process.Pid})
	if err != nil {
		return nil, err
	}
	return r, os.WriteFile(a.processFile, raw, 0o600)
}

// kill ends the reader.
func (r *diskReader) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// compare waits until all was read, and compares it.
func (r *diskReader) compare(sum string) error {
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("the reader ended: %w: %s", err, strings.TrimSpace(r.said.String()))
	}
	return compareFile(r.to, sum)
}

// compareFile compares a file with the SHA-256 that it should have.
func compareFile(path, sum string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum {
		return fmt.Errorf("%w: %s has the sum %s instead of %s", errWrongBytes, filepath.Base(path), got, sum)
	}
	return nil
}

// fillSmallDisk pulls to a disk that is too small: the process has to say so, and to continue once there is more.
func (s *scene) fillSmallDisk(ctx context.Context, proxy *faultyProxy, v lazyVersion) (err error) {
	ctx, cancel := context.WithTimeout(ctx, lazyRunTime)
	defer cancel()
	proxy.begin(0, 0)
	a := &lazyRun{scene: s, proxy: proxy, version: v}
	if err := a.prepare(filepath.Join(s.dir, "full")); err != nil {
		return err
	}
	mount := func(options string) error {
		_, err := rig.Output(ctx, "", "mount", "-t", "tmpfs", "-o", options, "lazy", a.order.Dir)
		return err
	}
	if err := mount(fmt.Sprint("size=", lazyDiskSize/2)); err != nil {
		return fmt.Errorf("mount a small disk: %w", err)
	}
	defer func() {
		_, gone := rig.Output(context.WithoutCancel(ctx), "", "umount", a.order.Dir)
		err = errors.Join(err, gone)
	}()
	defer func() { err = errors.Join(err, a.finish(context.WithoutCancel(ctx), false)) }()
	a.supervise(ctx)
	err = a.await(ctx, lazyfill.Complete)
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		return fmt.Errorf("the process on a full disk: %w", err)
	}
	proxy.count(lazyFull)
	a.stop()
	if err := lazyfill.EndProcess(ctx, filepath.Join(a.dir, "fill")); err != nil {
		return err
	}
	if err := mount(fmt.Sprint("remount,size=", 2*lazyDiskSize)); err != nil {
		return err
	}
	a.supervise(ctx)
	if err := a.await(ctx, lazyfill.Complete); err != nil {
		return err
	}
	return compareFile(filepath.Join(a.order.Dir, v.disk), v.sum)
}
