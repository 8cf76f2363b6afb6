package controllerrest

import (
	"bufio"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/rest"
)

// Intervals of a watch.
const (
	pingInterval      = 15 * time.Second
	watchWriteTimeout = 30 * time.Second // a reader that reads nothing for so long is disconnected
	lookupBatch       = 500              // instances that are looked up at a time
)

// A caller with more than freeWatches watches gets their lines at a limited rate over all of them: writing each
// change to hundreds of watches immediately would take the processors from other callers.
const (
	freeWatches   = 8
	pausePerWrite = time.Millisecond // for each write of one of the caller's watches
	pausePerLine  = 20 * time.Microsecond
	maxWatchPause = 5 * time.Second
)

// watchPauseTime returns how long a watch pauses after it wrote lines, for a caller with so many watches. Changes
// during the pause are sent once, in their latest state.
func watchPauseTime(watches, lines int) time.Duration {
	if watches <= freeWatches {
		return 0
	}
	return min(time.Duration(watches)*(pausePerWrite+time.Duration(lines)*pausePerLine), maxWatchPause)
}

// watchVMs streams the instances and their changes, one JSON object per line, until the client disconnects.
func (s *server) watchVMs(w http.ResponseWriter, r *http.Request) error {
	params, err := rest.ReadParams(w, r)
	if err != nil {
		return err
	}
	present := params.Bool("present", true)
	if err := params.Err(); err != nil {
		return err
	}
	release, err := s.watches.Acquire(r)
	if err != nil {
		return err
	}
	defer release()
	watch := s.controller.Instances.Watch(rest.CallerName(r))
	defer watch.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer lines
	if r.Method == http.MethodHead {
		return nil
	}
	out := newStreamWriter(w)
	defer out.clearDeadline()
	if present {
		out.writePresent(r, s.controller, watch)
	}
	out.writeLine(`{"type":"synced"}`)
	out.followWatch(r, watch)
	return nil
}

// streamWriter writes a stream of lines to a client. After a failure its methods do nothing.
type streamWriter struct {
	conn     *http.ResponseController
	buf      *bufio.Writer
	messages messageCache
	err      error
}

func newStreamWriter(w http.ResponseWriter) *streamWriter {
	conn := http.NewResponseController(w)
	return &streamWriter{conn: conn, buf: bufio.NewWriterSize(idleWriter{w, conn}, 16<<10)}
}

// idleWriter sets a new deadline for every write.
type idleWriter struct {
	http.ResponseWriter
	conn *http.ResponseController
}

func (p idleWriter) Write(text []byte) (int, error) {
	_ = p.conn.SetWriteDeadline(time.Now().Add(watchWriteTimeout)) // also for the flush that follows
	return p.ResponseWriter.Write(text)
}

// writePresent writes every present instance. It looks them up by pages, so that a slow reader keeps no old records
// in memory.
func (l *streamWriter) writePresent(r *http.Request, c *controller.Controller, watch *instances.Watch) {
	for page := (instances.Page{Limit: lookupBatch}); l.err == nil; {
		list := c.Instances.List(page)
		for _, inst := range list {
			l.writeInstance(inst)
		}
		l.flush()
		if len(list) < lookupBatch {
			return
		}
		l.pauseWatch(r, watch, len(list))
		page.After = list[len(list)-1].ID
	}
}

// followWatch writes changes until the client disconnects or is too far behind.
func (l *streamWriter) followWatch(r *http.Request, watch *instances.Watch) {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	for l.flush(); l.err == nil; l.flush() {
		select {
		case <-r.Context().Done():
			return
		case <-ping.C:
			l.writeLine(`{"type":"ping"}`)
		case <-watch.Wake():
			changes, ok := watch.Changes()
			if !ok {
				return
			}
			for _, change := range changes {
				l.writeChange(change)
			}
			l.flush()
			l.pauseWatch(r, watch, len(changes))
		}
	}
}

// pauseWatch waits as long as the other watches of the caller require, or until the client disconnects.
func (l *streamWriter) pauseWatch(r *http.Request, watch *instances.Watch, written int) {
	pace := watchPauseTime(watch.Siblings(), written)
	if pace == 0 || l.err != nil {
		return
	}
	select {
	case <-r.Context().Done():
		l.err = r.Context().Err()
	case <-time.After(pace):
	}
}

func (l *streamWriter) writeChange(seen instances.Change) {
	if seen.Instance == nil {
		l.writeLine(`{"type":"gone","instance_id":"` + seen.ID + `"}`) // IDs need no quoting
		return
	}
	l.writeInstance(seen.View)
}

func (l *streamWriter) writeInstance(inst instances.View) {
	l.writeBytes([]byte(`{"type":"set","instance":`))
	for _, piece := range l.messages.element(nil, inst) {
		l.writeBytes(piece)
	}
	l.writeBytes([]byte("}\n"))
}

func (l *streamWriter) writeLine(line string) { l.writeBytes([]byte(line + "\n")) }

func (l *streamWriter) writeBytes(text []byte) {
	if l.err == nil {
		_, l.err = l.buf.Write(text)
	}
}

// flush sends what was written so far.
func (l *streamWriter) flush() {
	if l.err == nil {
		l.err = l.buf.Flush()
	}
	if l.err == nil {
		l.err = l.conn.Flush()
	}
}

// clearDeadline removes the connection's write deadline.
func (l *streamWriter) clearDeadline() { _ = l.conn.SetWriteDeadline(time.Time{}) }
