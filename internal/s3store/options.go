package s3store

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Limits of S3.
const (
	MinPartSize = 5 << 20   // bytes of a part that is not the last one
	MaxPartSize = 500 << 20 // bytes, the limit of the setting
	maxParts    = 9000      // of one object; S3 permits 10,000
)

// Defaults of Options.
const (
	DefaultPartSize       = 20 << 20
	DefaultConcurrency    = 2
	DefaultReadBufferSize = 2 << 20
	DefaultLeaseDuration  = 30 * time.Second
	DefaultURLExpiry      = 15 * time.Minute
)

// Options configures the access to a prefix of a bucket. The zero value of a number means its default.
type Options struct {
	Bucket   string
	Prefix   string // of all keys; "" is the whole bucket
	Endpoint string // URL of the server; "" is that of Amazon for the region
	Region   string // "" asks the server

	// AccessKeyID and SecretAccessKey are static credentials; without them, those of the instance's role are used.
	AccessKeyID, SecretAccessKey, SessionToken string

	PathStyle           bool // bucket in the path, not in the host name
	SkipTLSVerification bool
	LogRequests         bool // log each request at Info level

	PartSize             int64         // bytes of a part of an upload
	UploadConcurrency    int           // parts in flight of one object
	ReadBufferSize       int64         // bytes that one read of an object fetches at least
	AbortIncompleteDays  int           // days after which the bucket aborts incomplete uploads; 0 removes the rule
	KeepLifecycle        bool          // leave the lifecycle rules of the bucket unchanged
	LeaseDuration        time.Duration // how long a registry without contact to the bucket keeps it
	Standby              bool          // wait for the lease of another registry instead of failing
	URLExpiry            time.Duration // of presigned URLs
	ProxyPulls           bool          // return no presigned URLs: layers go through the registry
	MaxAttemptsPerAction int           // of requests that the server fails with a temporary error

	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.PartSize = cmp.Or(o.PartSize, DefaultPartSize)
	o.UploadConcurrency = cmp.Or(o.UploadConcurrency, DefaultConcurrency)
	o.ReadBufferSize = cmp.Or(o.ReadBufferSize, DefaultReadBufferSize)
	o.LeaseDuration = cmp.Or(o.LeaseDuration, DefaultLeaseDuration)
	o.URLExpiry = cmp.Or(o.URLExpiry, DefaultURLExpiry)
	o.MaxAttemptsPerAction = cmp.Or(o.MaxAttemptsPerAction, 5)
	if o.Prefix = strings.Trim(o.Prefix, "/"); o.Prefix != "" {
		o.Prefix += "/"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// check returns an error for options with which no server can be used.
func (o Options) check() error {
	switch {
	case o.Bucket == "":
		return errors.New("the name of the S3 bucket is empty")
	case strings.Contains(o.Prefix, "//") || strings.Contains("/"+o.Prefix, "/../"):
		return fmt.Errorf("invalid S3 prefix %q: want names separated by single slashes", o.Prefix)
	case o.PartSize < MinPartSize || o.PartSize > MaxPartSize:
		return fmt.Errorf("invalid S3 part size of %d bytes: want between %d and %d", o.PartSize, MinPartSize,
			MaxPartSize)
	case (o.AccessKeyID == "") != (o.SecretAccessKey == ""):
		return errors.New("the S3 access key ID and its secret must be set together")
	}
	return nil
}

// endpoint returns host and port of the server, and whether TLS is used.
func (o Options) endpoint() (host string, secure bool, err error) {
	if o.Endpoint == "" {
		return "s3." + cmp.Or(o.Region, "us-east-1") + ".amazonaws.com", true, nil
	}
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return "", false, errors.New("invalid S3 endpoint: want an http or https URL with a host and no path")
	}
	return u.Host, u.Scheme == "https", nil
}

// transport makes the transport of all requests.
func (o Options) transport() (http.RoundTripper, error) {
	_, secure, err := o.endpoint()
	if err != nil {
		return nil, err
	}
	t, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("connect to S3: %w", err)
	}
	t.MaxIdleConnsPerHost = 64
	t.DialContext = dialWithStallLimit
	t.DisableCompression = true
	if o.SkipTLSVerification && secure {
		t.TLSClientConfig = &tls.Config{
			MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, //nolint:gosec // the operator's setting, for tests
		}
	}
	if !o.LogRequests {
		return t, nil
	}
	return requestLogger{t, o.Logger}, nil
}

// connect makes the client; it sends no request.
func (o Options) connect(transport http.RoundTripper) (*minio.Core, error) {
	host, secure, err := o.endpoint()
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	if o.PathStyle {
		lookup = minio.BucketLookupPath
	}
	core, err := minio.NewCore(host, &minio.Options{
		Creds: o.credentials(), Secure: secure, Region: o.Region, BucketLookup: lookup, Transport: transport,
		MaxRetries: o.MaxAttemptsPerAction,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to S3: %w", err)
	}
	return core, nil
}

func (o Options) credentials() *credentials.Credentials {
	if o.AccessKeyID != "" {
		return credentials.NewStaticV4(o.AccessKeyID, o.SecretAccessKey, o.SessionToken)
	}
	return credentials.NewIAM("")
}

// requestLogger logs method, key and status of each request: neither query nor headers, which may have credentials.
type requestLogger struct {
	next http.RoundTripper
	log  *slog.Logger
}

var _ http.RoundTripper = requestLogger{}

// RoundTrip implements http.RoundTripper.
func (l requestLogger) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := l.next.RoundTrip(req)
	status := 0
	if resp != nil {
		status = resp.StatusCode
	}
	l.log.InfoContext(req.Context(), "S3 request", "method", req.Method, "key", req.URL.Path, "bytes",
		req.ContentLength, "status", status, "duration", time.Since(began).Round(time.Microsecond))
	return resp, err
}
