package cliproc

import "bytes"

// tail keeps the last bytes that are written to it. One goroutine writes; bytes is called after it.
type tail struct {
	limit   int
	data    []byte
	written int64
}

// newTail returns a tail of at most limit bytes; 0 is the default.
func newTail(limit int) *tail {
	if limit <= 0 {
		limit = defaultKeepBytes
	}
	return &tail{limit: limit}
}

func (t *tail) Write(b []byte) (int, error) {
	n := len(b)
	t.written += int64(n)
	if n > t.limit {
		b, t.data = b[n-t.limit:], t.data[:0]
	}
	t.data = append(t.data, b...)
	if len(t.data) > 2*t.limit { // seldom, so that a byte is moved once on average
		t.data = t.data[:copy(t.data, t.data[len(t.data)-t.limit:])]
	}
	return n, nil
}

func (t *tail) dropped() bool { return t.written > int64(t.limit) }

// bytes returns what is kept. If something was dropped, it begins with a whole line where there is one.
func (t *tail) bytes() []byte {
	data := t.data[max(0, len(t.data)-t.limit):]
	if end := bytes.IndexByte(data, '\n'); t.dropped() && end >= 0 && end+1 < len(data) {
		data = data[end+1:]
	}
	return data
}
