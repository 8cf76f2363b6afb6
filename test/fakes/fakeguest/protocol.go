package fakeguest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// The control socket carries frames: a kind, the size of the content, the content. The real one carries gRPC, which
// no driver speaks itself.
const (
	frameRequest  = 'r' // JSON, the first frame
	frameInput    = 'i'
	frameInputEnd = 'I'
	frameStdout   = 'o'
	frameStderr   = 'e'
	frameExit     = 'x' // exit code, the last frame

	maxFrameBytes = 1 << 20
)

// What a Request asks for.
const (
	Exec     = "exec"
	Address  = "address"
	Shutdown = "shutdown"
	Reboot   = "reboot"
	Sync     = "sync"
)

// Request is what a guest agent is asked for.
type Request struct {
	Kind  string
	Args  []string
	Env   []string // "KEY=value", added to the guest's environment
	Dir   string   // working directory; "" = the home directory
	Stdin bool     // frames with input follow
	TTY   bool     // one output instead of two, without a terminal
}

type frameConn struct {
	net.Conn
	mu sync.Mutex // one frame at a time
}

func (c *frameConn) send(kind byte, content []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(content)))
	_, err := c.Write(append(head, content...))
	return err
}

func (c *frameConn) receive() (kind byte, content []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxFrameBytes {
		return 0, nil, errors.New("the frame is too large")
	}
	content = make([]byte, size)
	_, err = io.ReadFull(c, content)
	return head[0], content, err
}

// frameWriter sends what is written as frames of one kind.
type frameWriter struct {
	conn *frameConn
	kind byte
}

func (w frameWriter) Write(b []byte) (int, error) {
	for part := range chunks(b) {
		if err := w.conn.send(w.kind, part); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// chunks yields the parts of b that fit into a frame.
func chunks(b []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(len(b), maxFrameBytes)
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// NoAgentError reports that the guest agent does not answer.
type NoAgentError struct{ error }

// Call sends a request to the guest agent of the VM in a directory and returns the exit code. It changes the working
// directory, since the path of a socket is limited to about 100 bytes.
func Call(dir string, r Request, stdin io.Reader, stdout, stderr io.Writer) (code int, err error) {
	return r.call(filepath.Join(dir, ControlFile), stdin, stdout, stderr)
}

// call does that on a socket: of the agent, or of the guest itself.
func (r Request) call(socket string, stdin io.Reader, stdout, stderr io.Writer) (code int, err error) {
	if err := os.Chdir(filepath.Dir(socket)); err != nil {
		return 0, err
	}
	c, err := net.Dial("unix", filepath.Base(socket)) //nolint:noctx // a local socket answers immediately
	if err != nil {
		return 0, NoAgentError{err}
	}
	defer c.Close()
	conn := &frameConn{Conn: c}
	request, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	if err := conn.send(frameRequest, request); err != nil {
		return 0, err
	}
	if stdin != nil {
		go func() {
			_, _ = io.Copy(frameWriter{conn, frameInput}, stdin)
			_ = conn.send(frameInputEnd, nil)
		}()
	}
	return receiveOutput(conn, stdout, stderr)
}

func receiveOutput(conn *frameConn, stdout, stderr io.Writer) (code int, err error) {
	outputs := map[byte]io.Writer{frameStdout: stdout, frameStderr: stderr}
	for {
		kind, content, err := conn.receive()
		if err != nil {
			return 0, err
		}
		if kind == frameExit {
			return int(binary.BigEndian.Uint32(content)), nil
		}
		if out, found := outputs[kind]; found {
			if _, err := out.Write(content); err != nil {
				return 0, err
			}
		}
	}
}

func (c *frameConn) sendExit(code int) error {
	return c.send(frameExit, binary.BigEndian.AppendUint32(nil, uint32(code)))
}
