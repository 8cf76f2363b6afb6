//go:build linux

package qemu

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

func TestNewestMachine(t *testing.T) {
	help := "pc-q35-9.2 x\npc-q35-10.0           Standard PC (Q35 + ICH9, 2009)\npc-q35-10.1   old (deprecated)\nq35 " +
		"(alias of pc-q35-10.0)\npc-i440fx-11.0 y\n"
	if got, err := newestMachine([]byte(help), platforms["amd64"]); err != nil || got != "pc-q35-10.0" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := newestMachine([]byte("virt-9.0 x\n"), platforms["amd64"]); err == nil {
		t.Error("a QEMU without q35 was accepted")
	}
	help = "virt      QEMU 9.2 ARM Virtual Machine (alias of virt-9.2)\nvirt-9.1  x\n" +
		"virt-9.2  QEMU 9.2 ARM Virtual Machine\nvirt-10.0 old (deprecated)\n"
	if got, err := newestMachine([]byte(help), platforms["arm64"]); err != nil || got != "virt-9.2" {
		t.Errorf("got %q, %v", got, err)
	}
	if v, err := parseVersion([]byte("QEMU emulator version 7.2.22 (Debian 1:7.2)\n")); err != nil || v != "7.2.22" {
		t.Errorf("got %q, %v", v, err)
	}
}

func TestHasVirtualisation(t *testing.T) {
	for text, want := range map[string]bool{
		"processor : 0\nflags\t\t: fpu vmx sse\n": true,
		"flags : svm\n":                      true,
		"flags : fpu vmxx\nbugs : vmx\n":     false,
		"vmx flags : vnmi\nmodel : svm\n":    false,
		"":                                   false,
		strings.Repeat("x", 3<<20) + "\n":    false,
		"flags : " + strings.Repeat("a ", 9): false,
	} {
		if got := hasVirtualization([]byte(text)); got != want {
			t.Errorf("%.40q: %v, want %v", text, got, want)
		}
	}
}

func TestLegible(t *testing.T) {
	in := strings.Repeat("x", logTailBytes) + "\x1b[31mred\x00\r\n  and\tso\xff on\u009b\n"
	if got := sanitizedTail([]byte(in)); !strings.HasSuffix(got, "x[31mred and so on") {
		t.Errorf("got %q", got)
	}
}

func TestMachineUUIDIsNotTakenFromAName(t *testing.T) {
	args := "qemu\x00-name\x00guest=-uuid 1\x00-uuid\x002\x00-x\x00"
	if got := machineUUID([]byte(args)); got != "2" {
		t.Errorf("got %q", got)
	}
}

// A pid that is used again is not taken for the QEMU that had it.
func TestAlive(t *testing.T) {
	ticks, err := startTicks(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p := process{PID: os.Getpid(), StartTicks: ticks}
	if !p.isAlive() {
		t.Error("this process does not live")
	}
	p.StartTicks++
	if p.isAlive() {
		t.Error("a process with another start time is taken for the same")
	}
	if err := p.kill(); err != nil { // must not hit this test
		t.Error(err)
	}
}

func TestTrimLog(t *testing.T) {
	m := &machine{dir: t.TempDir()}
	name := filepath.Join(m.dir, logFile)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 3 {
		if _, err := f.Write(make([]byte, maxLogBytes)); err != nil {
			t.Fatal(err)
		}
	}
	m.trimLog()
	if _, err := f.WriteString("after"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(name); err != nil || string(b) != "after" {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestChoosePorts(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	busy := l.Addr().(*net.TCPAddr).Port
	d := &Driver{reservedPorts: map[int]string{}}
	if isPortFree(t.Context(), hv.PortRule{HostIP: "127.0.0.1", Protocol: "tcp"}, busy) {
		t.Errorf("port %d counts as free", busy)
	}
	rules := []hv.PortRule{
		{GuestPort: 1}, {GuestPort: 2, HostPort: 10000}, {GuestPort: 3, Protocol: "udp", HostIP: "127.0.0.1"},
	}
	got, err := d.choosePorts(t.Context(), "a", rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].HostPort <= 10000 || got[0].HostIP != "0.0.0.0" || got[0].Protocol != "tcp" ||
		got[2].HostPort == got[0].HostPort {
		t.Errorf("got %+v", got)
	}
	other, err := d.choosePorts(t.Context(), "b", []hv.PortRule{{GuestPort: 1}},
		map[int]bool{got[2].HostPort + 1: true})
	if err != nil || other[0].HostPort <= got[2].HostPort+1 {
		t.Errorf("the second VM got %+v, %v", other, err)
	}
	d.releasePorts("a")
	if len(d.reservedPorts) != 1 {
		t.Errorf("reserved: %v", d.reservedPorts)
	}
}

// header makes a qcow2 header with the given fields.
func header(version uint32, backing, size, features uint64, crypt uint32) []byte {
	h := make([]byte, 104)
	be := binary.BigEndian
	copy(h, "QFI\xfb")
	be.PutUint32(h[4:], version)
	be.PutUint64(h[8:], backing)
	be.PutUint64(h[24:], size)
	be.PutUint32(h[32:], crypt)
	be.PutUint32(h[20:], 17)
	be.PutUint64(h[72:], features)
	be.PutUint32(h[100:], 104)
	return h
}

func TestQcow2Size(t *testing.T) {
	if n, err := qcow2Size(bytes.NewReader(header(3, 0, 1000, 0, 0))); err != nil || n != 1024 {
		t.Errorf("got %d, %v", n, err)
	}
	for name, h := range map[string][]byte{
		"backing":   header(3, 0x200, 1<<20, 0, 0),
		"data file": header(3, 0, 1<<20, 1<<2, 0),
		"encrypted": header(2, 0, 1<<20, 0, 1),
		"empty":     header(3, 0, 0, 0, 0),
		"huge":      header(3, 0, 1<<63, 0, 0),
		"version":   header(4, 0, 1<<20, 0, 0),
		"short":     header(3, 0, 1<<20, 0, 0)[:100],
		"magic":     make([]byte, 200),
	} {
		if _, err := qcow2Size(bytes.NewReader(h)); !errors.Is(err, hv.ErrRefused) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}

func FuzzQcow2Size(f *testing.F) {
	f.Add(header(3, 0, 1<<20, 0, 0))
	f.Add(header(2, 1, 1<<20, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := qcow2Size(bytes.NewReader(b)); err == nil && (n <= 0 || n%512 != 0 || n > 1<<50) {
			t.Errorf("size %d", n)
		}
	})
}

func FuzzParseQMP(f *testing.F) {
	for _, s := range []string{
		`{"QMP": {"version": {}, "capabilities": []}}`, `{"return": {}, "id": 3}`, `{"return": {}, "id": "x"}`,
		`{"error": {"class": "GenericError", "desc": "no"}, "id": 1}`, `{"timestamp": {}, "event": "STOP", "data": {}}`,
		`{}`, `[`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parseQMP(line)
		if err == nil && m.Greeting == nil && m.Return == nil && m.Error == nil && m.Event == "" {
			t.Error("accepted a message of no kind")
		}
	})
}

func FuzzParseQGA(f *testing.F) {
	for _, s := range []string{
		`{"return": {"pid": 12}}`, `{"return": 5}`, `{"error": {"class": "x", "desc": "y"}}`,
		`{"return": {"exited": true, "exitcode": 1, "out-data": "YQ=="}}`, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(_ *testing.T, line []byte) {
		var s execStatus
		if parseQGA(line, &s) == nil && s.Exited {
			_, _ = s.result()
		}
	})
}

func FuzzReadLine(f *testing.F) {
	f.Add([]byte("a\nb\n"), 5)
	f.Add(bytes.Repeat([]byte("x"), 100), 20)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		limit = max(1, limit%4096)
		r := bufio.NewReaderSize(bytes.NewReader(in), 16)
		rest := in
		for {
			line, err := readLine(r, limit)
			if err != nil {
				return
			}
			want, after, ok := bytes.Cut(rest, []byte{'\n'})
			if !ok || !bytes.Equal(line, want) || len(line) >= limit+1 {
				t.Fatalf("got %q, want %q", line, want)
			}
			rest = after
		}
	})
}

// peer is the other end of a connection, scripted by a test.
func peer(t *testing.T, f func(c net.Conn, r *bufio.Reader)) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer theirs.Close()
		f(theirs, bufio.NewReader(theirs))
	}()
	t.Cleanup(func() { _ = ours.Close(); <-done })
	return ours
}

func say(c net.Conn, s string) { _, _ = io.WriteString(c, s) }

const greeting = `{"QMP": {"version": {}, "capabilities": []}}` + "\n"

// QMP: responses out of order, events in between, and one that comes too late.
func TestQMPOrder(t *testing.T) {
	c := peer(t, func(c net.Conn, r *bufio.Reader) {
		say(c, greeting)
		_, _ = r.ReadString('\n')
		say(c, `{"event": "RESUME"}`+"\n"+`{"return": {}}`+"\n")
		_, _ = r.ReadString('\n')
		_, _ = r.ReadString('\n')
		say(c, `{"return": {}, "id": 77}`+"\n"+
			`{"timestamp": {"seconds": 3, "microseconds": 4}, "event": "STOP", "data": {"reason": "x"}}`+"\n")
		say(c, `{"return": {"n": 2}, "id": 2}`+"\n"+`{"error": {"class": "C", "desc": "refused"}, "id": 1}`+"\n")
		_, _ = r.ReadString('\n')
	})
	q, err := newQMP(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan qmpMessage, 4)
	served := make(chan error, 1)
	go func() { served <- q.serve(func(m qmpMessage) { events <- m }) }()
	first := make(chan error, 1)
	id1, w1, err := q.send(t.Context(), "one", nil, nil)
	if err != nil || id1 != 1 {
		t.Fatal(id1, err)
	}
	go func() { first <- (<-w1).err }()
	var two struct{ N int }
	if err := q.call(t.Context(), "two", nil, &two); err != nil || two.N != 2 {
		t.Errorf("two: %+v, %v", two, err)
	}
	var refused *remoteError
	if err := <-first; !errors.As(err, &refused) || refused.Desc != "refused" {
		t.Errorf("one: %v", err)
	}
	if got := <-events; got.Event != "STOP" || string(got.Data) != `{"reason": "x"}` ||
		!got.Timestamp.time().Equal(time.Unix(3, 4000)) {
		t.Errorf("event %+v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := q.call(ctx, "three", nil, nil); err == nil {
		t.Error("three was answered")
	}
	if err := <-served; err == nil {
		t.Error("serve ended without a reason")
	}
	if err := q.call(t.Context(), "four", nil, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("four: %v", err)
	}
}

func TestQMPBadPeers(t *testing.T) {
	for name, text := range map[string]string{
		"no greeting": `{"return": {}}` + "\n", "garbage": "hello\n", "silence": "", "half": `{"QMP"`,
		"endless": strings.Repeat("x", maxQMPLineBytes+2),
	} {
		c := peer(t, func(c net.Conn, _ *bufio.Reader) { say(c, text) })
		if _, err := newQMP(t.Context(), c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	if _, err := newQMP(ctx, ours); err == nil { // connected and never answers
		t.Error("a silent peer was accepted")
	}
}

// agentOf returns a guest agent client whose every connection is served by f.
func agentOf(t *testing.T, f func(n int, c net.Conn, r *bufio.Reader)) *guestAgent {
	n := 0
	g := newGuestAgent(func(context.Context) (net.Conn, error) {
		n++
		me := n
		return peer(t, func(c net.Conn, r *bufio.Reader) { f(me, c, r) }), nil
	})
	t.Cleanup(g.close)
	return g
}

// answerSync reads a sync request and answers it behind stale bytes.
func answerSync(c net.Conn, r *bufio.Reader, before string) bool {
	line, err := r.ReadBytes('\n')
	if err != nil || line[0] != 0xff {
		return false
	}
	var m struct{ Arguments struct{ ID uint32 } }
	if json.Unmarshal(line[1:], &m) != nil {
		return false
	}
	b, _ := json.Marshal(map[string]uint32{"return": m.Arguments.ID})
	say(c, before+"\xff"+string(b)+"\n")
	return true
}

// QGA: stale responses are skipped, and after a lost response the next call starts on a new
// connection.
func TestQGAResync(t *testing.T) {
	g := agentOf(t, func(n int, c net.Conn, r *bufio.Reader) {
		if !answerSync(c, r, `{"return": {"pid": 1}}`+"\n"+"\xff"+`{"return": 4}`+"\n") {
			return
		}
		_, _ = r.ReadString('\n')
		if n == 1 {
			_, _ = r.ReadString('\n') // never answers
			return
		}
		say(c, `{"return": 7}`+"\n")
		_, _ = r.ReadString('\n')
		say(c, `{"error": {"class": "GenericError", "desc": "no such thing"}}`+"\n")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := g.call(ctx, "lost", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("lost: %v", err)
	}
	var n int
	if err := g.call(t.Context(), "found", nil, &n); err != nil || n != 7 {
		t.Errorf("found: %d, %v", n, err)
	}
	var refused *remoteError
	if err := g.call(t.Context(), "bad", nil, nil); !errors.As(err, &refused) {
		t.Errorf("bad: %v", err)
	}
}

// A guest that sends without end costs a limited amount of memory and an error.
func TestQGAEndless(t *testing.T) {
	for name, text := range map[string]string{"line": "x", "marks": "\xff", "lines": "\xff{}\n"} {
		g := agentOf(t, func(_ int, c net.Conn, r *bufio.Reader) {
			go func() { _, _ = io.Copy(io.Discard, r) }()
			block := []byte(strings.Repeat(text, 64<<10))
			for {
				if _, err := c.Write(block); err != nil {
					return
				}
			}
		})
		// Without the deadline of a call: the amount ends it, on a busy machine, too.
		if err := g.exchange(t.Context(), "guest-ping", nil, nil); err == nil {
			t.Errorf("%s: it is taken for an answer", name)
		}
	}
}

// While one call waits for its guest, another can still be canceled.
func TestCanceledGuestAgentCall(t *testing.T) {
	begun := make(chan struct{})
	g := agentOf(t, func(_ int, c net.Conn, r *bufio.Reader) {
		close(begun)
		_, _ = io.Copy(io.Discard, r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- g.call(ctx, "one", nil, nil) }()
	<-begun
	short, cancelShort := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancelShort()
	if err := g.call(short, "two", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two: %v", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("one: %v", err)
	}
}

// A file that is not a raw disk would reach the guest as it is.
func TestOnlyRawDisksBehindSockets(t *testing.T) {
	d := &Driver{machines: map[string]*machine{}}
	for format, refused := range map[string]bool{"raw": false, "qcow2": true} {
		s := hv.Spec{
			ID: "vm", UUID: "6a6f7e8a-2f0e-4b07-9d5e-0f9f3f4b7a11", CPUs: 1, MemoryMB: 64,
			Disks: []hv.Disk{{Path: "/disk", Format: format, Socket: "/socket", Bytes: 1 << 20}},
		}
		_, err := d.acceptSpec(s)
		if got := err != nil && strings.Contains(err.Error(), "behind a socket"); got != refused {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// A move must not take the socket from a start that has not started QEMU yet.
func TestMoveDuringStart(t *testing.T) {
	d := &Driver{machines: map[string]*machine{}}
	d.opts.Dir, d.stepHook, d.ctx = t.TempDir(), func(string) {}, t.Context()
	spec := hv.Spec{ID: "vm", Disks: []hv.Disk{{Path: "/disk", Format: "raw", Socket: "/socket", Bytes: 1 << 20}}}
	m, err := d.ensureMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.UseFile(t.Context(), "vm", 0); !errors.Is(err, errStarting) || m.config.Spec.Disks[0].Socket == "" {
		t.Errorf("before QEMU: %v, %+v", err, m.config.Spec.Disks)
	}
	m.starts.Add(-1) // the end of the start
	if err := d.UseFile(t.Context(), "vm", 0); err != nil || m.config.Spec.Disks[0].Socket != "" {
		t.Errorf("of a stopped VM: %v, %+v", err, m.config.Spec.Disks)
	}
}
