package client_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// TestMain runs the examples only with a cloud: BUILDYARD_EXAMPLE_PROXY is a proxy to it, which test/sdk starts.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := prepareExamples(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func prepareExamples() error {
	if proxy := os.Getenv("BUILDYARD_EXAMPLE_PROXY"); proxy != "" {
		return os.Setenv("HTTP_PROXY", proxy)
	}
	skip := flag.Lookup("test.skip").Value.String()
	if skip != "" {
		skip += "|"
	}
	return flag.Set("test.skip", skip+"^Example")
}
