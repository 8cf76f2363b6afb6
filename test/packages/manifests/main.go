// Command manifests checks manifests of Kubernetes against the types of its API: a field that does not exist, or has a
// value of another type, is an error. It has a separate module: no program needs these types.
//
// It neither contacts a cluster nor applies defaults, and it does not know which fields are required.
//
// Invariant: a file of a kind that it does not know is an error.
package main

import (
	"errors"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// kinds are the known kinds, by API version and kind.
var kinds = map[string]func() any{
	"v1 Namespace":        func() any { return &corev1.Namespace{} },
	"v1 Service":          func() any { return &corev1.Service{} },
	"v1 ServiceAccount":   func() any { return &corev1.ServiceAccount{} },
	"apps/v1 StatefulSet": func() any { return &appsv1.StatefulSet{} },
}

func main() {
	var errs []error
	for _, file := range os.Args[1:] {
		if err := check(file); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
	}
	if err := errors.Join(errs...); err != nil || len(os.Args) < 2 {
		_, _ = fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
	fmt.Printf("%d files match the types of the API\n", len(os.Args)-1)
}

func check(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var meta struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(raw, &meta); err != nil {
		return err
	}
	kind := kinds[meta.APIVersion+" "+meta.Kind]
	if kind == nil {
		return fmt.Errorf("unknown kind %s %s", meta.APIVersion, meta.Kind)
	}
	return yaml.UnmarshalStrict(raw, kind())
}
