package cliproc

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const maxDrainBytes = 1 << 20 // of what a pipe still has; more than pipes can hold

// output keeps the last part of what a program writes to a pipe.
type output struct {
	*tail
	read, write *os.File
	done        chan struct{} // closed when nothing is read any longer
	isHeld      bool          // after done: another process has the pipe open
}

func newOutput(limit int) (*output, error) {
	r, w, err := os.Pipe()
	return &output{tail: newTail(limit), read: r, write: w, done: make(chan struct{})}, err
}

// begin reads after the program's start; the program has its own descriptor.
func (o *output) begin() {
	_ = o.write.Close()
	go func() {
		defer close(o.done)
		defer o.read.Close()
		if _, err := io.Copy(o.tail, o.read); os.IsTimeout(err) {
			o.isHeld = o.drain()
		}
	}()
}

// end waits a while for the end of the output, which other processes may have open. Without a start it closes the pipe.
func (o *output) end(isStarted bool) {
	if !isStarted {
		_ = o.read.Close()
		_ = o.write.Close()
		return
	}
	_ = o.read.SetReadDeadline(time.Now().Add(outputDelay))
	<-o.done
}

// drain reads what the pipe has at the moment, so that nothing is lost that the program itself has written. It reports
// whether the pipe is open.
func (o *output) drain() (isOpen bool) {
	_ = o.read.SetReadDeadline(time.Time{})
	raw, err := o.read.SyscallConn()
	if err != nil {
		return true
	}
	buffer := make([]byte, 32<<10)
	for range maxDrainBytes / len(buffer) {
		n := 0
		rerr := raw.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), buffer)
			return true // without waiting
		})
		if rerr != nil || err != nil {
			return true
		}
		if n == 0 {
			return false
		}
		_, _ = o.tail.Write(buffer[:n])
	}
	return true
}
