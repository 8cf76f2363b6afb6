package upstreamtest

import (
	"bytes"
	"net/http"
	"strconv"
	"time"
)

// Status answers with a status; header is pairs of a name and a value.
func Status(code int, header ...string) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

// CutAfter ends the connection after so many bytes of the file, whose length was stated.
func CutAfter(n int) Fault {
	return func(w http.ResponseWriter, _ *http.Request, content []byte) {
		w.Header().Set("ETag", etag(content, ""))
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:n])
		flush(w)
		panic(http.ErrAbortHandler)
	}
}

// Damaged sends other bytes than the file has, of its length and with its validators.
func Damaged(w http.ResponseWriter, r *http.Request, content []byte) {
	b := bytes.Clone(content)
	b[len(b)/2] ^= 0x55
	w.Header().Set("ETag", etag(content, ""))
	if len(r.URL.Path) > len(osvPath) && r.URL.Path[:len(osvPath)] == osvPath {
		w.Header().Set("X-Goog-Hash", "crc32c="+crc(content))
	}
	_, _ = w.Write(b)
}

// Content sends other content, as a server whose cache has a wrong file.
func Content(b []byte) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) { _, _ = w.Write(b) }
}

// Packed sends other content, compressed on the way.
func Packed(b []byte) Fault {
	packed := Gzip(b)
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed)
	}
}

// Endless sends bytes until the client ends.
func Endless(w http.ResponseWriter, r *http.Request, _ []byte) {
	for b := make([]byte, 1<<20); r.Context().Err() == nil; {
		if _, err := w.Write(b); err != nil {
			return
		}
	}
}

// Silent sends some bytes and then nothing until the client ends. It reports on started that it has begun.
func Silent(n int, started chan<- struct{}) Fault {
	return func(w http.ResponseWriter, r *http.Request, content []byte) {
		w.Header().Set("ETag", etag(content, ""))
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:n])
		flush(w)
		if started != nil {
			started <- struct{}{}
		}
		<-r.Context().Done()
	}
}

// Slow sends the file in parts with pauses.
func Slow(parts int, pause time.Duration) Fault {
	return func(w http.ResponseWriter, _ *http.Request, content []byte) {
		w.Header().Set("ETag", etag(content, ""))
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		for i := range parts {
			_, _ = w.Write(content[i*len(content)/parts : (i+1)*len(content)/parts])
			flush(w)
			time.Sleep(pause)
		}
	}
}

// Redirect leads to another URL.
func Redirect(to string) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ []byte) { http.Redirect(w, r, to, http.StatusFound) }
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
