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

// openSource chooses among the methods of a Mac.
func openSource(cfg *watchConfig, buffer *changeBuffer) (eventSource, error) {
	return openMethod(cfg, buffer, []methodEntry{{FSEvents, openFSEvents}, {Poll, openPoll}})
}

const (
	createNoDefer    = 0x2
	createWatchRoot  = 0x4
	createIgnoreSelf = 0x8
	createFileEvents = 0x10

	eventLatency      = 0.2     // seconds
	maxEventsPerCall  = 1 << 16 // read of one call
	maxEventPathBytes = 4096    // read of one path
	saveInterval      = 5 * time.Second
	utf8              = 0x08000100 // kCFStringEncodingUTF8
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
	streamQueue    func(stream, queue uintptr)
	streamStart    func(stream uintptr) bool
	streamFlush    func(stream uintptr)
	streamStop     func(stream uintptr)
	streamEnd      func(stream uintptr)
	streamFree     func(stream uintptr)
	queueCreate    func(label string, attr uintptr) uintptr
	queueRelease   func(queue uintptr)
	arrayCallbacks uintptr // kCFTypeArrayCallBacks
	callback       uintptr
}

// streamContext is FSEventStreamContext. The system copies it.
type streamContext struct {
	version                       int
	info                          uintptr
	retain, release, describeCopy uintptr
}

var loadCoreServices = sync.OnceValues(findCoreServices)

func findCoreServices() (*coreServices, error) {
	a := &coreServices{}
	core, err := loadLibrary("/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation", map[string]any{
		"CFStringCreateWithCString": &a.stringCreate, "CFStringGetCString": &a.stringGet,
		"CFArrayCreate":      &a.arrayCreate,
		"CFUUIDCreateString": &a.uuidString, "CFRelease": &a.release,
	})
	if err != nil {
		return nil, err
	}
	if a.arrayCallbacks, err = purego.Dlsym(core, "kCFTypeArrayCallBacks"); err != nil {
		return nil, err
	}
	_, err = loadLibrary("/System/Library/Frameworks/CoreServices.framework/CoreServices", map[string]any{
		"FSEventsCopyUUIDForDevice": &a.uuidForDevice, "FSEventStreamCreate": &a.streamCreate,
		"FSEventStreamSetDispatchQueue": &a.streamQueue, "FSEventStreamStart": &a.streamStart,
		"FSEventStreamFlushSync": &a.streamFlush, "FSEventStreamStop": &a.streamStop,
		"FSEventStreamInvalidate": &a.streamEnd, "FSEventStreamRelease": &a.streamFree,
	})
	if err != nil {
		return nil, err
	}
	_, err = loadLibrary("/usr/lib/libSystem.B.dylib", map[string]any{
		"dispatch_queue_create": &a.queueCreate, "dispatch_release": &a.queueRelease,
	})
	if err != nil {
		return nil, err
	}
	a.callback = purego.NewCallback(onEvents)
	return a, nil
}

// loadLibrary finds functions in a library.
func loadLibrary(name string, functions map[string]any) (uintptr, error) {
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

// streamSources are the sources by number, for the system's callback, which cannot have Go pointers.
var (
	streamSources sync.Map // uintptr -> *fsEventsSource
	lastStream    atomic.Uint64
)

// fsEventsSource watches by FSEvents, one stream for all roots. The system calls on a separate queue, one
// call at a time.
type fsEventsSource struct {
	cfg           *watchConfig
	buffer        *changeBuffer
	services      *coreServices
	streamNumber  uintptr
	stream        uintptr
	dispatchQueue uintptr
	volumes       []string
	excluded      func(string) bool // what the caller leaves out

	mu             sync.Mutex
	skippedMounts  map[string]string // mount point -> type, of file systems without files of this machine
	reportedMounts []Mount
	lastSaved      time.Time
}

func openFSEvents(cfg *watchConfig, buffer *changeBuffer) (eventSource, error) {
	services, err := loadCoreServices()
	if err != nil {
		return nil, err
	}
	e := &fsEventsSource{
		cfg: cfg, buffer: buffer, services: services, streamNumber: uintptr(lastStream.Add(1)), excluded: cfg.Exclude,
	}
	cfg.Exclude = e.isExcluded
	if err := e.readMounts(); err != nil {
		return nil, err
	}
	for _, r := range cfg.roots {
		e.volumes = append(e.volumes, e.volumeUUID(r))
	}
	after, lost := resumePoint(cfg.StatePath, e.volumes)
	streamSources.Store(e.streamNumber, e)
	if err := e.startStream(after); err != nil {
		e.closeStream()
		return nil, err
	}
	if lost {
		cfg.Log.Warn("Changes since the last run are unknown; all watched directories are scanned again.")
		cfg.addLostChanges(buffer)
	}
	return e, nil
}

// startStream creates and starts the stream.
func (e *fsEventsSource) startStream(after uint64) error {
	var paths []uintptr
	defer func() {
		for _, p := range paths {
			e.services.release(p)
		}
	}()
	for _, r := range e.cfg.roots {
		p := e.services.stringCreate(0, r, utf8)
		if p == 0 {
			return fmt.Errorf("%q cannot be watched: its name is not valid UTF-8", r)
		}
		paths = append(paths, p)
	}
	list := e.services.arrayCreate(0, &paths[0], len(paths), e.services.arrayCallbacks)
	if list == 0 {
		return errors.New("creating the list of watched directories failed")
	}
	defer e.services.release(list)
	flags := uint32(createNoDefer | createWatchRoot | createIgnoreSelf | createFileEvents)
	e.stream = e.services.streamCreate(0, e.services.callback, &streamContext{info: e.streamNumber}, list, after,
		eventLatency, flags)
	if e.stream == 0 {
		return errors.New("creating the FSEvents stream failed")
	}
	e.dispatchQueue = e.services.queueCreate("buildyard.watch", 0)
	e.services.streamQueue(e.stream, e.dispatchQueue)
	if !e.services.streamStart(e.stream) {
		return errors.New("starting the FSEvents stream failed")
	}
	return nil
}

// onEvents is called by the system with a list of events.
//
//nolint:revive // the system sets the number of arguments
func onEvents(
	_, info, n uintptr, paths *[maxEventsPerCall]*[maxEventPathBytes]byte, flags *[maxEventsPerCall]uint32,
	ids *[maxEventsPerCall]uint64,
) {
	v, ok := streamSources.Load(info)
	if !ok {
		return
	}
	e, ok := v.(*fsEventsSource)
	if !ok || n == 0 {
		return
	}
	if n > maxEventsPerCall {
		e.cfg.addLostChanges(e.buffer)
		n = maxEventsPerCall
	}
	for i := range n {
		end := slices.Index(paths[i][:], 0)
		if end < 0 {
			e.cfg.addLostChanges(e.buffer)
			continue
		}
		if e.cfg.addFSEvent(e.buffer, string(paths[i][:end]), flags[i]) {
			if err := e.readMounts(); err != nil {
				e.cfg.Log.Error("Reading the mount table failed.", "error", err)
			}
		}
	}
	e.buffer.setLastAdded(ids[n-1])
}

func (e *fsEventsSource) start() {}

// ackDelivered saves the progress from time to time: repeated changes after a crash do no harm.
func (e *fsEventsSource) ackDelivered() {
	e.mu.Lock()
	due := time.Since(e.lastSaved) > saveInterval
	e.mu.Unlock()
	if due {
		e.saveProgress()
	}
}

func (e *fsEventsSource) saveProgress() {
	id := e.buffer.deliveredEvent()
	if e.cfg.StatePath == "" || id == 0 {
		return
	}
	if err := (fsEventsProgress{e.volumes, id}).save(e.cfg.StatePath); err != nil {
		e.cfg.Log.Warn(
			"Saving the position in the event stream failed; after a restart some changes are reported again.", "error",
			err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastSaved = time.Now()
}

// flush makes the system deliver events that it delays for the latency.
func (e *fsEventsSource) flush(context.Context) error {
	e.services.streamFlush(e.stream)
	return nil
}

func (e *fsEventsSource) stop() error {
	e.closeStream()
	e.saveProgress()
	return nil
}

func (e *fsEventsSource) closeStream() {
	if e.stream != 0 {
		e.services.streamStop(e.stream)
		e.services.streamEnd(e.stream)
		e.services.streamFree(e.stream)
		e.stream = 0
	}
	if e.dispatchQueue != 0 {
		e.services.queueRelease(e.dispatchQueue)
		e.dispatchQueue = 0
	}
	streamSources.Delete(e.streamNumber)
}

// volumeUUID returns the UUID of the volume of a directory, "" if it has none.
func (e *fsEventsSource) volumeUUID(dir string) string {
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil {
		return ""
	}
	uuid := e.services.uuidForDevice(st.Dev)
	if uuid == 0 {
		return ""
	}
	defer e.services.release(uuid)
	text := e.services.uuidString(0, uuid)
	if text == 0 {
		return ""
	}
	defer e.services.release(text)
	buf := make([]byte, 64)
	if !e.services.stringGet(text, &buf[0], len(buf), utf8) {
		return ""
	}
	return unix.ByteSliceToString(buf)
}

// localFSTypes are the file systems of a Mac with its own files, the same as for a full scan.
var localFSTypes = map[string]bool{"apfs": true, "hfs": true, "exfat": true, "msdos": true, "udf": true, "cd9660": true}

// readMounts reads which file systems are mounted. Those of a root are watched whatever they are.
func (e *fsEventsSource) readMounts() error {
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
		case point == dataVolume || slices.Contains(e.cfg.roots, point):
			said = append(said, Mount{point, kind, FSEvents, ""})
		case !localFSTypes[kind]:
			foreign[point] = kind
			said = append(said, Mount{point, kind, None, "it holds no files of this machine"})
		default:
			said = append(said, Mount{point, kind, FSEvents, ""})
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.skippedMounts, e.reportedMounts = foreign, said
	return nil
}

// isExcluded reports whether a directory is left out.
func (e *fsEventsSource) isExcluded(path string) bool {
	e.mu.Lock()
	_, far := e.skippedMounts[path]
	e.mu.Unlock()
	return far || e.excluded(path)
}

func (e *fsEventsSource) mounts() []Mount {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.reportedMounts)
}
