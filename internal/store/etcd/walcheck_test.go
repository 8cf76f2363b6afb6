package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protowire"
)

// logWriter writes a log as etcd does.
type logWriter struct {
	data []byte
	sum  uint32
}

// add appends a record with a right checksum.
func (w *logWriter) add(kind uint64, data []byte) *logWriter {
	if kind != walChecksum {
		w.sum = crc32.Update(w.sum, castagnoli, data)
	}
	return w.frame(logBody(kind, uint64(w.sum), data))
}

// frame appends a body as it is.
func (w *logWriter) frame(body []byte) *logWriter {
	pad := (8 - len(body)%8) % 8
	head := uint64(len(body))
	if pad > 0 {
		head |= uint64(0x80|pad) << 56
	}
	w.data = binary.LittleEndian.AppendUint64(w.data, head)
	w.data = append(append(w.data, body...), make([]byte, pad)...)
	return w
}

func logBody(kind, sum uint64, data []byte) []byte {
	b := protowire.AppendVarint(append([]byte(nil), 0x08), kind)
	b = protowire.AppendVarint(append(b, 0x10), sum)
	if data != nil {
		b = protowire.AppendBytes(append(b, 0x1a), data)
	}
	return b
}

// logNumbers returns a message of numbers, the first one with the tag 1.
func logNumbers(numbers ...uint64) (b []byte) {
	for i, n := range numbers {
		b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(i+1), protowire.VarintType), n)
	}
	return b
}

// logOf returns a log of entries with these indexes.
func logOf(entries ...uint64) *logWriter {
	w := (&logWriter{}).add(walChecksum, nil).add(walMetadata, []byte("no numbers")).add(walSnapshot, logNumbers(0, 0))
	for _, index := range entries {
		w.add(walEntry, logNumbers(0, 1, index))
	}
	return w
}

// logFile returns the name of a file of a log.
func logFile(seq int) string { return fmt.Sprintf("%016x-%016x.wal", seq, 0) }

// TestLogRecords: the records of one log file, or why it is refused.
func TestLogRecords(t *testing.T) {
	whole := logOf(5, 6)
	at := len(whole.data) // where the next record begins
	damaged := fmt.Sprintf("unreadable record at byte %d", at)
	with := func(f func(w *logWriter)) []byte {
		w := logOf(5, 6)
		f(w)
		return w.data
	}
	cut := func(data []byte, n int) []byte { return data[:len(data)-n] }
	aligned := with(func(w *logWriter) { w.add(walMetadata, []byte("12345678")) })
	long := with(func(w *logWriter) { w.add(walMetadata, []byte(strings.Repeat("x", 4*sectorSize))) })
	unwritten := func(sectors int) []byte { // of the long record, without the sectors after that number
		data := slices.Clone(long)
		clear(data[(at/sectorSize+sectors)*sectorSize:])
		return data
	}
	wrongSum := func(kind uint64) []byte {
		return with(func(w *logWriter) { w.frame(logBody(kind, uint64(w.sum)+1, logNumbers(0, 1, 7))) })
	}
	head := func(head uint64) []byte {
		return binary.LittleEndian.AppendUint64(slices.Clone(whole.data), head)
	}

	for name, tc := range map[string]struct {
		data []byte
		want string
		last uint64
	}{
		"nothing": {data: nil},
		"entries": {data: whole.data, last: 6},
		"allocated space": {
			data: append(slices.Clone(whole.data), make([]byte, 3*sectorSize+5)...), last: 6,
		},
		"a record without padding":   {data: aligned, last: 6},
		"the first entry may be any": {data: logOf(70, 71, 72).data, last: 72},
		"a state": {
			data: with(func(w *logWriter) { w.add(walStateRecord, logNumbers(3, 1, 99)) }), last: 6,
		},
		"a snapshot before entries": {data: (&logWriter{}).add(walSnapshot, logNumbers(9, 1)).data, last: 9},
		"a snapshot after entries": {
			data: with(func(w *logWriter) { w.add(walSnapshot, logNumbers(9, 1)) }), last: 6,
		},
		"a checksum that goes on": {data: with(func(w *logWriter) { w.add(walChecksum, nil) }), last: 6},
		"a log whose begin is purged": {data: (&logWriter{sum: 77}).add(walChecksum, nil).add(walEntry,
			logNumbers(0, 1, 7)).data, last: 7},
		"the largest checksum": {data: (&logWriter{sum: 0xffffffff}).add(walChecksum, nil).add(walEntry,
			logNumbers(0, 1, 7)).data, last: 7},

		"an entry that is missing": {data: logOf(5,
			7).data, want: "entry 7 follows entry 5, want consecutive numbers (at byte"},
		"an entry twice": {data: logOf(5,
			5).data, want: "entry 5 follows entry 5, want consecutive numbers (at byte"},
		"an unknown kind": {
			data: with(func(w *logWriter) { w.add(walSnapshot+1, logNumbers(1)) }),
			want: "record of unknown kind 6 (at byte",
		},
		"an entry of text": {
			data: with(func(w *logWriter) { w.add(walEntry, []byte("\xff\xff")) }),
			want: "malformed record (at byte",
		},
		"another checksum": {
			data: with(func(w *logWriter) { w.sum++; w.add(walChecksum, nil) }),
			want: "the log file does not continue the previous one (at byte",
		},

		"an entry with a wrong checksum":   {data: wrongSum(walEntry), want: damaged},
		"a snapshot with a wrong checksum": {data: wrongSum(walSnapshot), want: damaged},
		"a state with a wrong checksum":    {data: wrongSum(walStateRecord), want: damaged},
		"a metadata with a wrong checksum": {data: wrongSum(walMetadata), want: damaged},
		"a checksum of more than 32 bits": {
			data: with(func(w *logWriter) { w.frame(logBody(walChecksum, 1<<32, nil)) }), want: damaged,
		},
		"no kind": {
			data: with(func(w *logWriter) { w.frame([]byte("\x10\x01")) }), want: damaged,
		},
		"no checksum": {
			data: with(func(w *logWriter) { w.frame([]byte("\x08\x02\x1a\x01x")) }), want: damaged,
		},
		"a kind without a number": {
			data: with(func(w *logWriter) { w.frame([]byte("\x08")) }), want: damaged,
		},
		"a kind whose number does not end": {
			data: with(func(w *logWriter) { w.frame([]byte("\x08" + strings.Repeat("\xff", 11))) }), want: damaged,
		},
		"data longer than their record": {
			data: with(func(w *logWriter) { w.frame([]byte("\x08\x02\x10\x01\x1a\x60x")) }), want: damaged,
		},
		"a record shorter than its frame": {data: with(func(w *logWriter) {
			w.frame(append(logBody(walMetadata, uint64(w.sum), nil), "rest"...))
		}), want: damaged},
		"a frame of another padding": {
			data: func() []byte { d := slices.Clone(long); d[at+7] ^= 1; return d }(), want: damaged,
		},
		"a frame cut in its padding": {data: cut(with(func(w *logWriter) { w.add(walMetadata, []byte("x")) }),
			1), want: damaged},
		"zeros before a record": {data: append(head(0), "record"...), want: damaged},
		"zeros to the end of a sector": {data: append(append(head(0), make([]byte, 2*sectorSize)...),
			1), want: "the log file ends in the middle of a record"},
		"the begin of a length": {
			data: append(slices.Clone(whole.data), 9), want: "the log file ends in the middle of a record",
		},
		"a length alone": {data: head(0x84<<56 | 12), want: "the log file ends in the middle of a record"},
		"a length and allocated space": {
			data: append(head(2048), make([]byte, 6*sectorSize)...),
			want: "the log file ends in the middle of a record",
		},
		"a length alone in its sector": {
			data: append(head(0x84<<56|12), make([]byte, 6*sectorSize)...), want: damaged,
		},
		"a record whose end was not written": {data: unwritten(3), want: "the log file ends in the middle of a record"},
		"a record without its data": {
			data: append(with(func(w *logWriter) {
				w.frame(append(logBody(walEntry, uint64(w.sum), nil), 0x1a, 0xf0, 0x0f))
			}), make([]byte, 6*sectorSize)...),
			want: damaged,
		},
		"the first record torn": {
			data: append([]byte{0, 8, 0, 0, 0, 0, 0, 0}, make([]byte, 6*sectorSize)...),
			want: "the log file ends in the middle of a record",
		},
		"a record of one sector": {data: unwritten(1), want: "the log file ends in the middle of a record"},
		"a length that was changed": {
			data: append(append(head(0xffff), logBody(walMetadata, uint64(whole.sum), nil)...),
				make([]byte, 6*sectorSize)...), want: damaged,
		},
		"a changed byte in a long record": {
			data: func() []byte { d := slices.Clone(long); d[at+3*sectorSize]++; return d }(), want: damaged,
		},
	} {
		var s walState
		err := s.readFile(tc.data)
		switch {
		case tc.want == "" && (err != nil || s.lastIndex != tc.last):
			t.Errorf("%s: last entry %d, %v, want %d", name, s.lastIndex, err, tc.last)
		case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)):
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		case tc.want != "" && errors.Is(err, errTornRecord) != (tc.want == errTornRecord.Error()):
			t.Errorf("%s: %v is one that a crash leaves: %t", name, err, errors.Is(err, errTornRecord))
		}
	}
}

// TestLogCutAnywhere: the records read from a log that ends early are the first ones of the whole
// log.
func TestLogCutAnywhere(t *testing.T) {
	data := logOf(1, 2, 3).data
	for n := range len(data) {
		for _, allocated := range []int{0, 2 * sectorSize} {
			var s walState
			err := s.readFile(append(slices.Clone(data[:n]), make([]byte, allocated)...))
			if s.lastIndex > 3 || err != nil && !errors.Is(err, errTornRecord) &&
				!strings.Contains(err.Error(), "unreadable record") {
				t.Errorf("cut at %d: last entry %d, %v", n, s.lastIndex, err)
			}
		}
	}
}

// TestLogFiles: the files of a log follow each other, and only the last one may end in the middle of a record.
func TestLogFiles(t *testing.T) {
	first := logOf(1, 2)
	second := (&logWriter{sum: first.sum}).add(walChecksum, nil).add(walEntry, logNumbers(0, 1, 3))
	third := (&logWriter{sum: second.sum}).add(walChecksum, nil).add(walSnapshot, logNumbers(2, 1))
	torn := func(w *logWriter) []byte { return append(slices.Clone(w.data), 9) }
	for name, tc := range map[string]struct {
		files map[string][]byte
		want  string // with DIR for the directory
		last  uint64
	}{
		"no file": {},
		"files": {
			files: map[string][]byte{logFile(0): first.data, logFile(1): second.data, logFile(2): third.data}, last: 3,
		},
		"a torn end":   {files: map[string][]byte{logFile(0): first.data, logFile(1): torn(second)}, last: 3},
		"the last two": {files: map[string][]byte{logFile(1): second.data, logFile(2): third.data}, last: 3},
		"a torn middle": {
			files: map[string][]byte{logFile(0): torn(first), logFile(1): second.data},
			want:  "DIR/" + logFile(0) + " is damaged: the log file ends in the middle of a record",
		},
		"a damaged end": {
			files: map[string][]byte{logFile(0): append(slices.Clone(first.data),
				second.data...), logFile(1): logOf(9).data},
			want: "DIR/" + logFile(1) + " is damaged: the log file does not continue the previous one (at byte 0)",
		},
		"a missing file": {
			files: map[string][]byte{logFile(0): first.data, logFile(2): third.data},
			want:  "DIR/" + logFile(2) + " is damaged: the previous log file, number 1, is missing",
		},
		"another name": {
			files: map[string][]byte{"x.wal": first.data},
			want:  "DIR/x.wal is damaged: the file does not have the name of a log file",
		},
		"a directory": {
			files: map[string][]byte{logFile(0) + "/x": nil},
			want:  "log: read DIR/" + logFile(0) + ": is a directory",
		},
	} {
		dir := t.TempDir()
		writeFiles(t, dir, tc.files)
		s, err := checkWAL(dir)
		got := ""
		if err != nil {
			got = strings.ReplaceAll(err.Error(), dir, "DIR")
		}
		if got != tc.want || tc.want == "" && s.lastIndex != tc.last {
			t.Errorf("%s: last entry %d, %q, want %d, %q", name, s.lastIndex, got, tc.last, tc.want)
		}
	}
}

// writeFiles creates files below a directory.
func writeFiles(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLogsOfEtcd: a log written by etcd is read as it was written.
func TestLogsOfEtcd(t *testing.T) {
	whole := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 4096 // of a file of the log
	defer func() { wal.SegmentSizeBytes = whole }()
	dir, r := filepath.Join(t.TempDir(), "wal"), rand.New(rand.NewPCG(5, 6))
	w, err := wal.Create(zap.NewNop(), dir, []byte("metadata"))
	if err != nil {
		t.Fatal(err)
	}
	want := walState{snapshots: []snapshotID{{}}}
	for range 40 {
		var entries []*raftpb.Entry
		for range r.IntN(4) {
			want.lastIndex++
			entries = append(entries,
				&raftpb.Entry{Term: new(uint64(1)), Index: new(want.lastIndex), Data: make([]byte, r.IntN(700))})
		}
		err := w.Save(&raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(want.lastIndex)},
			entries)
		if err == nil && r.IntN(5) == 0 {
			id := snapshotID{term: 1, index: want.lastIndex}
			err = w.SaveSnapshot(&walpb.Snapshot{
				Index: new(id.index), Term: new(id.term), ConfState: &raftpb.ConfState{Voters: []uint64{1}},
			})
			want.snapshotIndex, want.snapshots = id.index, append(want.snapshots, id)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := checkWAL(dir)
		if err != nil || got.lastIndex != want.lastIndex || got.snapshotIndex != want.snapshotIndex ||
			!slices.Equal(got.snapshots, want.snapshots) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*.wal")); len(files) < 3 {
		t.Errorf("the log has the files %v, want several", files)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestAllZero: every byte is checked.
func TestAllZero(t *testing.T) {
	for _, size := range []int{0, 1, len(zeroBytes) - 1, len(zeroBytes), len(zeroBytes) + 1, 3*len(zeroBytes) + 5} {
		data := make([]byte, size)
		if !allZero(data) {
			t.Errorf("%d zeros are not all zero", size)
		}
		for at := 0; at < size; at += max(1, size/7) {
			data[at] = 1
			if allZero(data) {
				t.Errorf("byte %d of %d is not looked at", at, size)
			}
			data[at] = 0
		}
	}
}
