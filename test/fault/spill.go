package fault

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
)

// callLog keeps the calls of a long history in a file, one JSON object a line, so that
// what the checker holds in memory grows with the instances and not with the calls.
type callLog struct {
	mu   sync.Mutex // guards the fields below
	file *os.File
	out  *bufio.Writer
	enc  *json.Encoder
	n    int // calls
	err  error
}

func newSpill(path string) (*callLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keep the history: %w", err)
	}
	s := &callLog{file: f, out: bufio.NewWriterSize(f, 1<<20)}
	s.enc = json.NewEncoder(s.out)
	return s, nil
}

// add keeps a call; what goes wrong shows when the history is read.
func (s *callLog) add(c call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.err = errors.Join(s.err, s.enc.Encode(c))
}

// each reads every call from the first to the last. The function reports afterwards whether that
// was all of them.
func (s *callLog) each() (iter.Seq[call], func() error) {
	var err error
	return func(yield func(call) bool) { err = s.read(yield) }, func() error { return err }
}

func (s *callLog) read(yield func(call) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.err, s.out.Flush()); err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	dec := json.NewDecoder(bufio.NewReaderSize(io.NewSectionReader(s.file, 0, 1<<62), 1<<20))
	for i := range s.n {
		var c call
		if err := dec.Decode(&c); err != nil {
			return fmt.Errorf("read call %d of %d of the history: %w", i+1, s.n, err)
		}
		if !yield(c) {
			return nil
		}
	}
	return nil
}

func (s *callLog) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.err, s.out.Flush(), s.file.Close())
}
