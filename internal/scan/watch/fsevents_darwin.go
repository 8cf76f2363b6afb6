package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// open chooses among the methods of a Mac.
func open(s *scope, news *changeBuffer) (source, error) {
	return choose(s, news, []methodEntry{{FSEvents, openEvents}, {Poll, openPoll}})
}

const (
	createNoDefer    = 0x2
	createWatchRoot  = 0x4
	createIgnoreSelf = 0x8
	createFileEvents = 0x10

	eventLatency = 0.2     // seconds
	eventsAtOnce = 1 << 16 // read of one call
	pathBytes    = 4096    // read of one path
	saveEvery    = 5 * time.Second
	utf8         = 0x08000100 // kCFStringEncodingUTF8
)

// coreServices are the functions of the system that are used, looked up on first use.
type coreServices struct {
	stringCreate  func(alloc uintptr, s string, encoding uint32) uintptr
	stringGet     func(s uintptr, buf *byte, size int, encoding uint32) bool
	arrayCreate   func(alloc uintptr, values *uintptr, n int, callbacks uintptr) uintptr
	uuidString    func(alloc, uuid uintptr) uintptr
	release       func(ref uintptr)
	uuidForDevice func(dev int32) uintptr
	streamCreate  func(alloc, callback uintptr, context *streamContext, paths uintptr, since uint64, latency float64,
		flags uint32) uintptr
	streamQueue  func(stream, queue uintptr)
	streamStart  func(stream uintptr) bool
	streamFlush  func(stream uintptr)
	streamStop   func(stream uintptr)
	streamEnd    func(stream uintptr)
	streamFree   func(stream uintptr)
	queueCreate  func(label string, attr uintptr) uintptr
	queueRelease func(queue uintptr)
	arrayCalls   uintptr // kCFTypeArrayCallBacks
	callback     uintptr
}

// streamContext is FSEventStreamContext. The system copies it.
type streamContext struct {
	version                       int
	info                          uintptr
	retain, release, describeCopy uintptr
}

var system = sync.OnceValues(findCoreServices)

func findCoreServices() (*coreServices, error) {
	a := &coreServices{}
	core, err := library("/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation", map[string]any{
		"CFStringCreateWithCString": &a.stringCreate, "CFStringGetCString": &a.stringGet,
		"CFArrayCreate":      &a.arrayCreate,
		"CFUUIDCreateString": &a.uuidString, "CFRelease": &a.release,
	})
	if err != nil {
		return nil, err
	}
	if a.arrayCalls, err = purego.Dlsym(core, "kCFTypeArrayCallBacks"); err != nil {
		return nil, err
	}
	_, err = library("/System/Library/Frameworks/CoreServices.framework/CoreServices", map[string]any{
		"FSEventsCopyUUIDForDevice": &a.uuidForDevice, "FSEventStreamCreate": &a.streamCreate,
		"FSEventStreamSetDispatchQueue": &a.streamQueue, "FSEventStreamStart": &a.streamStart,
		"FSEventStreamFlushSync": &a.streamFlush, "FSEventStreamStop": &a.streamStop,
		"FSEventStreamInvalidate": &a.streamEnd, "FSEventStreamRelease": &a.streamFree,
	})
	if err != nil {
		return nil, err
	}
	_, err = library("/usr/lib/libSystem.B.dylib", map[string]any{
		"dispatch_queue_create": &a.queueCreate, "dispatch_release": &a.queueRelease,
	})
	if err != nil {
		return nil, err
	}
	a.callback = purego.NewCallback(arrived)
	return a, nil
}

// library finds functions in a library.
func library(name string, functions map[string]any) (uintptr, error) {
	lib, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return 0, err
	}
	for f, to := range functions {
		at, err := purego.Dlsym(lib, f)
		if err != nil {
			return 0, err
		}
		purego.RegisterFunc(to, at)
	}
	return lib, nil
}

// streams are the sources by number, for the system's callback, which cannot have Go pointers.
var (
	streams    sync.Map // uintptr -> *events
	lastStream atomic.Uint64
)

// events watches by FSEvents, one stream for all roots. The system calls on a separate queue, one
// call at a time.
type events struct {
	s       *scope
	news    *changeBuffer
	a       *coreServices
	number  uintptr
	stream  uintptr
	queue   uintptr
	volumes []string
	left    func(string) bool // what the caller leaves out

	mu      sync.Mutex
	foreign map[string]string // mount point -> type, of file systems without files of this machine
	said    []Mount
	saved   time.Time
}

func openEvents(s *scope, news *changeBuffer) (source, error) {
	a, err := system()
	if err != nil {
		return nil, err
	}
	e := &events{s: s, news: news, a: a, number: uintptr(lastStream.Add(1)), left: s.Leave}
	s.Leave = e.leave
	if err := e.readMounts(); err != nil {
		return nil, err
	}
	for _, r := range s.roots {
		e.volumes = append(e.volumes, e.volume(r))
	}
	after, lost := since(s.State, e.volumes)
	streams.Store(e.number, e)
	if err := e.begin(after); err != nil {
		e.end()
		return nil, err
	}
	if lost {
		s.Log.Warn("What changed since the last time is not known: everything is to be looked at again.")
		s.lost(news)
	}
	return e, nil
}

// begin creates and starts the stream.
func (e *events) begin(after uint64) error {
	var paths []uintptr
	defer func() {
		for _, p := range paths {
			e.a.release(p)
		}
	}()
	for _, r := range e.s.roots {
		p := e.a.stringCreate(0, r, utf8)
		if p == 0 {
			return fmt.Errorf("%q cannot be watched: its name is not valid", r)
		}
		paths = append(paths, p)
	}
	list := e.a.arrayCreate(0, &paths[0], len(paths), e.a.arrayCalls)
	if list == 0 {
		return errors.New("the system lists no directories")
	}
	defer e.a.release(list)
	flags := uint32(createNoDefer | createWatchRoot | createIgnoreSelf | createFileEvents)
	e.stream = e.a.streamCreate(0, e.a.callback, &streamContext{info: e.number}, list, after, eventLatency, flags)
	if e.stream == 0 {
		return errors.New("the system makes no stream of events")
	}
	e.queue = e.a.queueCreate("buildyard.watch", 0)
	e.a.streamQueue(e.stream, e.queue)
	if !e.a.streamStart(e.stream) {
		return errors.New("the stream of events does not start")
	}
	return nil
}

// arrived is called by the system with a list of events.
//
//nolint:revive // the system sets the number of arguments
func arrived(
	_, info, n uintptr, paths *[eventsAtOnce]*[pathBytes]byte, flags *[eventsAtOnce]uint32, ids *[eventsAtOnce]uint64,
) {
	v, ok := streams.Load(info)
	if !ok {
		return
	}
	e, ok := v.(*events)
	if !ok || n == 0 {
		return
	}
	if n > eventsAtOnce {
		e.s.lost(e.news)
		n = eventsAtOnce
	}
	for i := range n {
		end := slices.Index(paths[i][:], 0)
		if end < 0 {
			e.s.lost(e.news)
			continue
		}
		if e.s.macEvent(e.news, string(paths[i][:end]), flags[i]) {
			if err := e.readMounts(); err != nil {
				e.s.Log.Error("The table of mounts cannot be read.", "error", err)
			}
		}
	}
	e.news.reached(ids[n-1])
}

func (e *events) start() {}

// delivered saves the progress from time to time: repeated changes after a crash do no harm.
func (e *events) delivered() {
	e.mu.Lock()
	due := time.Since(e.saved) > saveEvery
	e.mu.Unlock()
	if due {
		e.keep()
	}
}

func (e *events) keep() {
	id := e.news.delivered()
	if e.s.State == "" || id == 0 {
		return
	}
	if err := (progress{e.volumes, id}).save(e.s.State); err != nil {
		e.s.Log.Warn("After a restart some changes are reported again.", "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.saved = time.Now()
}

// flush makes the system deliver events that it delays for the latency.
func (e *events) flush(context.Context) error {
	e.a.streamFlush(e.stream)
	return nil
}

func (e *events) stop() error {
	e.end()
	e.keep()
	return nil
}

func (e *events) end() {
	if e.stream != 0 {
		e.a.streamStop(e.stream)
		e.a.streamEnd(e.stream)
		e.a.streamFree(e.stream)
		e.stream = 0
	}
	if e.queue != 0 {
		e.a.queueRelease(e.queue)
		e.queue = 0
	}
	streams.Delete(e.number)
}

// volume returns the UUID of the volume of a directory, "" if it has none.
func (e *events) volume(folder string) string {
	var st syscall.Stat_t
	if syscall.Stat(folder, &st) != nil {
		return ""
	}
	uuid := e.a.uuidForDevice(st.Dev)
	if uuid == 0 {
		return ""
	}
	defer e.a.release(uuid)
	text := e.a.uuidString(0, uuid)
	if text == 0 {
		return ""
	}
	defer e.a.release(text)
	buf := make([]byte, 64)
	if !e.a.stringGet(text, &buf[0], len(buf), utf8) {
		return ""
	}
	return unix.ByteSliceToString(buf)
}

// local are the file systems of a Mac with its own files, the same as for a full scan.
var local = map[string]bool{"apfs": true, "hfs": true, "exfat": true, "msdos": true, "udf": true, "cd9660": true}

// readMounts reads which file systems are mounted. Those of a root are watched whatever they are.
func (e *events) readMounts() error {
	n, err := unix.Getfsstat(nil, unix.MNT_NOWAIT)
	if err != nil {
		return os.NewSyscallError("getfsstat", err)
	}
	list := make([]unix.Statfs_t, n+8)
	if n, err = unix.Getfsstat(list, unix.MNT_NOWAIT); err != nil {
		return os.NewSyscallError("getfsstat", err)
	}
	foreign := map[string]string{}
	var said []Mount
	for _, st := range list[:n] {
		point, kind := unix.ByteSliceToString(st.Mntonname[:]), unix.ByteSliceToString(st.Fstypename[:])
		switch {
		case point == dataVolume || slices.Contains(e.s.roots, point):
			said = append(said, Mount{point, kind, FSEvents, ""})
		case !local[kind]:
			foreign[point] = kind
			said = append(said, Mount{point, kind, None, "it holds no files of this machine"})
		default:
			said = append(said, Mount{point, kind, FSEvents, ""})
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.foreign, e.said = foreign, said
	return nil
}

// leave reports whether a directory is left out.
func (e *events) leave(path string) bool {
	e.mu.Lock()
	_, far := e.foreign[path]
	e.mu.Unlock()
	return far || e.left(path)
}

func (e *events) mounts() []Mount {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.said)
}
