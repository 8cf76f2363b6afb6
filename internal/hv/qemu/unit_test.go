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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// The command line is part of what a saved state depends on: a change here is
// a decision.
func TestCommandLine(t *testing.T) {
	got := commandLine(launch{
		spec: hv.Spec{
			UUID: "6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c11", Name: "a,b=c", CPUs: 2, MemoryMB: 512, MAC: "52:54:00:01:02:03",
			Video: hv.VideoVGA, HardwareUUID: "6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c12", Serial: "C02,uuid=x",
		},
		ports: []hv.PortRule{
			{GuestPort: 22, HostPort: 10000, HostIP: "0.0.0.0", Protocol: "tcp"},
			{GuestPort: 53, HostPort: 10001, HostIP: "127.0.0.1", Protocol: "udp"},
		},
		host: hv.Host{Machine: "pc-q35-7.2", Accelerator: "tcg", CPU: "max"},
		qmp:  7, qga: 8, sandbox: true,
		disks: []diskFiles{
			{layers: []layerFile{{"disk0-layer0", "qcow2", 4}, {"disk0-layer1", "qcow2", 9}}, generation: 2, rw: 3, ro: 10},
			{layers: []layerFile{{"disk1-layer0", "raw", 6}}, rw: 5, ro: 11},
		},
	})
	want := strings.Fields(`-uuid 6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c11 -name guest=a,,b=c -nodefaults -no-user-config -display none
 -machine pc-q35-7.2,dump-guest-core=off -accel tcg,thread=multi -cpu max -smp 2 -m 512M -boot menu=off,strict=on -action panic=pause
 -chardev socket,id=qmp,fd=7,server=on,wait=off -mon chardev=qmp,mode=control
 -chardev ringbuf,id=serial,size=65536 -device isa-serial,chardev=serial
 -device vmgenid,guid=auto -vnc none,password=on,connections=8 -device VGA,id=vga,addr=0x1
 -device virtio-serial-pci,id=vserial,addr=0x2 -chardev socket,id=qga,fd=8,server=on,wait=off
 -device virtserialport,chardev=qga,id=qga0,name=org.qemu.guest_agent.0
 -object rng-builtin,id=rng -device virtio-rng-pci,id=rng0,rng=rng,addr=0x3 -device pvpanic
 -netdev user,id=net0,ipv6=off,hostfwd=tcp:0.0.0.0:10000-:22,hostfwd=udp:127.0.0.1:10001-:53
 -device virtio-net-pci,id=nic0,netdev=net0,romfile=,mac=52:54:00:01:02:03,addr=0x4 -device qemu-xhci,id=usb,addr=0x5
 -device pcie-root-port,id=port0,chassis=1,addr=0x6.0,multifunction=on -device pcie-root-port,id=port1,chassis=2,addr=0x6.1,multifunction=on
 -device pcie-root-port,id=port2,chassis=3,addr=0x6.2,multifunction=on -device pcie-root-port,id=port3,chassis=4,addr=0x6.3,multifunction=on
 -smbios type=1,uuid=6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c12,serial=C02,,uuid=x
 -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny
 -add-fd fd=4,set=1
 -blockdev {"backing":null,"driver":"qcow2","file":{"driver":"file","filename":"/dev/fdset/1","read-only":true},"node-name":"disk0-layer0","read-only":true}
 -add-fd fd=9,set=2
 -blockdev {"backing":"disk0-layer0","driver":"qcow2","file":{"driver":"file","filename":"/dev/fdset/2","read-only":true},"node-name":"disk0-layer1","read-only":true}
 -add-fd fd=3,set=3 -add-fd fd=10,set=3
 -blockdev {"backing":"disk0-layer1","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"qcow2","file":{"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/dev/fdset/3","locking":"off"},"node-name":"disk0-2"}
 -device virtio-blk-pci,id=vd0,drive=disk0-2,addr=0x8,werror=stop,rerror=stop,bootindex=1
 -add-fd fd=6,set=4
 -blockdev {"driver":"raw","file":{"driver":"file","filename":"/dev/fdset/4","read-only":true},"node-name":"disk1-layer0","read-only":true}
 -add-fd fd=5,set=5 -add-fd fd=11,set=5
 -blockdev {"backing":"disk1-layer0","cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"qcow2","file":{"cache":{"direct":false,"no-flush":false},"discard":"unmap","driver":"file","filename":"/dev/fdset/5","locking":"off"},"node-name":"disk1-0"}
 -device virtio-blk-pci,id=vd1,drive=disk1-0,addr=0x9,werror=stop,rerror=stop`)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Whatever a serial number says, it stays one.
func FuzzSMBIOS(f *testing.F) {
	for _, s := range []string{"", "C02X", ",", ",,", "a,uuid=b", "=", "a,", ",serial=x,"} {
		f.Add(s)
	}
	const uuid = "6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c11"
	f.Fuzz(func(t *testing.T, serial string) {
		s := hv.Spec{
			ID: "a", UUID: uuid, HardwareUUID: uuid, Serial: serial, CPUs: 1, MemoryMB: 64,
			Disks: []hv.Disk{{Path: "/a", Format: "raw"}},
		}
		if s.Validate() != nil {
			t.Skip()
		}
		// As QEMU reads options: a comma ends one, two are a comma in it.
		options := strings.Split(strings.ReplaceAll(smbios(s), ",,", "\x00"), ",")
		for i := range options {
			options[i] = strings.ReplaceAll(options[i], "\x00", ",")
		}
		want := []string{"type=1", "uuid=" + uuid, "serial=" + serial}
		if serial == "" {
			want = want[:2]
		}
		if !slices.Equal(options, want) {
			t.Errorf("%q becomes %q", serial, options)
		}
	})
}

// What a guest may reach is decided here.
func TestNetdev(t *testing.T) {
	rule := []hv.PortRule{{GuestPort: 22, HostPort: 10000, HostIP: "0.0.0.0", Protocol: "tcp"}}
	const user, forward = "user,id=net0,ipv6=off", ",hostfwd=tcp:0.0.0.0:10000-:22"
	for _, c := range []struct {
		spec  hv.Spec
		ports []hv.PortRule
		want  string
	}{
		{hv.Spec{Network: hv.NetworkShared}, rule, user + forward},
		{hv.Spec{Network: hv.NetworkNAT}, nil, user},
		{hv.Spec{Network: hv.NetworkNAT, Isolated: true}, rule, user + ",restrict=on" + forward},
		{hv.Spec{Network: hv.NetworkHost}, rule, user + ",restrict=on" + forward},
		{hv.Spec{Network: hv.NetworkDisconnected}, nil, user + ",restrict=on"},
		{hv.Spec{Network: hv.NetworkBridge}, nil, "tap,id=net0,fd=9"},
	} {
		if got := netdev(c.spec, c.ports, 9); got != c.want {
			t.Errorf("%s, isolated %v: got %s, want %s", c.spec.Network, c.spec.Isolated, got, c.want)
		}
	}
}

func TestGrowOverlay(t *testing.T) {
	if _, err := exec.LookPath(imageTool); err != nil {
		t.Skip("qemu-img is not installed")
	}
	path := filepath.Join(t.TempDir(), "overlay.qcow2")
	if err := createOverlay(t.Context(), path, 8<<20); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{16 << 20, 8 << 20} { // and never back
		if err := growOverlay(t.Context(), path, size); err != nil {
			t.Fatal(err)
		}
		if f, got, err := openBase(hv.Disk{Path: path, Format: "qcow2"}); err != nil || got != 16<<20 {
			t.Errorf("%d bytes, %v", got, err)
		} else {
			_ = f.Close()
		}
	}
	if got := diskBytes(hv.Spec{DiskBytes: 1000}); got != 1024 {
		t.Errorf("a disk of %d bytes", got)
	}
}

func TestNewestMachine(t *testing.T) {
	help := "pc-q35-9.2 x\npc-q35-10.0           Standard PC (Q35 + ICH9, 2009)\npc-q35-10.1   old (deprecated)\nq35 (alias of pc-q35-10.0)\npc-i440fx-11.0 y\n"
	if got, err := newestMachine([]byte(help)); err != nil || got != "pc-q35-10.0" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := newestMachine([]byte("virt-9.0\n")); err == nil {
		t.Error("a QEMU without q35 was accepted")
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
		if got := hasVirtualisation([]byte(text)); got != want {
			t.Errorf("%.40q: %v, want %v", text, got, want)
		}
	}
}

func TestLegible(t *testing.T) {
	in := strings.Repeat("x", logTail) + "\x1b[31mred\x00\r\n  and\tso\xff on\u009b\n"
	if got := legible([]byte(in)); !strings.HasSuffix(got, "x[31mred and so on") {
		t.Errorf("got %q", got)
	}
}

func TestMachineUUIDIsNotTakenFromAName(t *testing.T) {
	args := "qemu\x00-name\x00guest=-uuid 1\x00-uuid\x002\x00-x\x00"
	if got := machineUUID([]byte(args)); got != "2" {
		t.Errorf("got %q", got)
	}
	if state, ticks, err := parseStat([]byte("12 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20")); err != nil || state != 'S' || ticks != 4242 {
		t.Errorf("parseStat: %c %d %v", state, ticks, err)
	}
}

// A pid that is used again is not taken for the QEMU that had it.
func TestAlive(t *testing.T) {
	ticks, err := startTicks(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p := process{PID: os.Getpid(), StartTicks: ticks}
	if !p.alive() {
		t.Error("this process does not live")
	}
	p.StartTicks++
	if p.alive() {
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
		if _, err := f.Write(make([]byte, maxLog)); err != nil {
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
	d := &Driver{reserved: map[int]string{}}
	if free(t.Context(), hv.PortRule{HostIP: "127.0.0.1", Protocol: "tcp"}, busy) {
		t.Errorf("port %d counts as free", busy)
	}
	rules := []hv.PortRule{{GuestPort: 1}, {GuestPort: 2, HostPort: 10000}, {GuestPort: 3, Protocol: "udp", HostIP: "127.0.0.1"}}
	got, err := d.choosePorts(t.Context(), "a", rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].HostPort <= 10000 || got[0].HostIP != "0.0.0.0" || got[0].Protocol != "tcp" || got[2].HostPort == got[0].HostPort {
		t.Errorf("got %+v", got)
	}
	other, err := d.choosePorts(t.Context(), "b", []hv.PortRule{{GuestPort: 1}}, map[int]bool{got[2].HostPort + 1: true})
	if err != nil || other[0].HostPort <= got[2].HostPort+1 {
		t.Errorf("the second VM got %+v, %v", other, err)
	}
	d.releasePorts("a")
	if len(d.reserved) != 1 {
		t.Errorf("reserved: %v", d.reserved)
	}
}

// header makes a qcow2 header with the given fields.
func header(version uint32, backing, size, features uint64, crypt uint32) []byte {
	h := make([]byte, qcow2HeaderBytes)
	be := binary.BigEndian
	be.PutUint32(h[0:], qcow2Magic)
	be.PutUint32(h[4:], version)
	be.PutUint64(h[8:], backing)
	be.PutUint64(h[24:], size)
	be.PutUint32(h[32:], crypt)
	be.PutUint64(h[72:], features)
	return h
}

func TestQcow2Size(t *testing.T) {
	if n, err := qcow2Size(bytes.NewReader(header(3, 0, 1000, 0, 0))); err != nil || n != 1024 {
		t.Errorf("got %d, %v", n, err)
	}
	for name, h := range map[string][]byte{
		"backing":   header(3, 0x200, 1<<20, 0, 0),
		"data file": header(3, 0, 1<<20, qcow2DataFile, 0),
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
		`{"error": {"class": "GenericError", "desc": "no"}, "id": 1}`, `{"timestamp": {}, "event": "STOP", "data": {}}`, `{}`, `[`,
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
		`{"return": {"pid": 12}}`, `{"return": 5}`, `{"error": {"class": "x", "desc": "y"}}`, `{"return": {"exited": true, "exitcode": 1, "out-data": "YQ=="}}`, `null`,
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

// QMP: answers out of order, events in between, and one that comes too late.
func TestQMPOrder(t *testing.T) {
	c := peer(t, func(c net.Conn, r *bufio.Reader) {
		say(c, greeting)
		_, _ = r.ReadString('\n')
		say(c, `{"event": "RESUME"}`+"\n"+`{"return": {}}`+"\n")
		_, _ = r.ReadString('\n')
		_, _ = r.ReadString('\n')
		say(c, `{"return": {}, "id": 77}`+"\n"+`{"timestamp": {"seconds": 3, "microseconds": 4}, "event": "STOP", "data": {"reason": "x"}}`+"\n")
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
	if got := <-events; got.Event != "STOP" || string(got.Data) != `{"reason": "x"}` || !got.At.time().Equal(time.Unix(3, 4000)) {
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
		"endless": strings.Repeat("x", maxQMPLine+2),
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

// agentOf is a guest agent client whose every connection is served by f.
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

// QGA: stale answers are passed over, and after a lost answer the next call
// begins on a new connection.
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

// A guest that sends without end costs bounded memory and an error.
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
		if err := g.sync(t.Context()); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// While one call waits for its guest, another can still give up.
func TestQGATurn(t *testing.T) {
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
