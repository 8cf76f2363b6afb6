package buildyard_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// terminal runs the program on a terminal of 80 columns, types keys when its output matches, and
// checks its exit code: terminal CODE REGEXP KEYS ARGS... The content of the screen is in the file
// screen. ^C is a key; \n ends a line.
func terminal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: terminal code regexp keys args...")
	}
	want, err := regexp.Compile(args[1])
	ts.Check(err)
	keys := strings.NewReplacer("^C", "\x03", `\n`, "\n").Replace(args[2])
	own, theirs, err := openTerminal()
	ts.Check(err)
	defer func() { _ = own.Close() }()
	cmd := exec.Command(filepath.Join(firstOf(ts.Getenv("PATH")), "buildyard"), args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = theirs, theirs, theirs, ts.MkAbs(".")
	for _, key := range []string{"PATH", "HOME", "SVC_CONTROLLER"} {
		cmd.Env = append(cmd.Env, key+"="+ts.Getenv(key))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ts.Check(cmd.Start())
	_ = theirs.Close()
	s := &screen{want: want, seen: make(chan struct{})}
	shown := make(chan struct{})
	go func() {
		s.read(own)
		close(shown)
	}()
	select {
	case <-s.seen:
		_, err = own.WriteString(keys)
		ts.Check(err)
	case <-shown:
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
	}
	late := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // the exit code has the result
	late.Stop()
	<-shown
	ts.Check(os.WriteFile(ts.MkAbs("screen"), s.text(), 0o600))
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[0] || !want.Match(s.text()) {
		ts.Fatalf("buildyard %v ends with %s, want %s; on the screen is:\n%s", args[3:], got, args[0], s.text())
	}
}

func firstOf(path string) string {
	return filepath.SplitList(path)[0]
}

// screen is what a program has shown on a terminal.
type screen struct {
	want *regexp.Regexp
	seen chan struct{} // closed when that was shown

	mu  sync.Mutex
	all bytes.Buffer
}

// read reads until the program has closed the terminal.
func (s *screen) read(from *os.File) {
	some := make([]byte, 4096)
	for told := false; ; {
		n, err := from.Read(some)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.all.Write(some[:n])
		found := s.want.Match(s.all.Bytes())
		s.mu.Unlock()
		if found && !told {
			told = true
			close(s.seen)
		}
	}
}

// text returns what was shown, with ends of lines as files have them.
func (s *screen) text() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.ReplaceAll(s.all.Bytes(), []byte("\r"), []byte("\n"))
}

// openTerminal makes a terminal: the end that a person has, and that of a program.
func openTerminal() (own, theirs *os.File, err error) {
	if own, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	fd := int(own.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 25, Col: 80})
	}
	if err == nil {
		theirs, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = own.Close()
	}
	return own, theirs, err
}
