package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

// Start an instance, wait for it, and end it.
func Example() {
	c, err := client.NewController("http://build.example:8090", client.Options{Credentials: client.RootToken("the root token")})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	ids, err := c.Start(ctx, client.StartRequest{
		TemplateID: "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032", ExternalID: "job-17", IdempotencyKey: client.NewKey(),
	})
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Terminate(context.WithoutCancel(ctx), ids[0]) }()
	instance, err := c.WaitStarted(ctx, ids[0], func(i api.Instance) { fmt.Println(i.InstanceState, i.Progress) })
	if err != nil {
		panic(err)
	}
	fmt.Println("reach it at", instance.VMInfo.HostIP)
}

// Errors have codes.
func ExampleError() {
	c, _ := client.NewController("http://build.example:8090", client.Options{})
	_, err := c.Template(context.Background(), "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032")
	switch e := (*client.Error)(nil); {
	case errors.Is(err, client.ErrNotFound):
		fmt.Println("there is no such template")
	case errors.As(err, &e):
		fmt.Println(e.Message, "request", e.RequestID)
	}
}

// Follow every instance. A stream that breaks is taken up again.
func ExampleController_Watch() {
	c, _ := client.NewController("http://build.example:8090", client.Options{})
	for change, err := range c.Watch(context.Background(), client.WatchOptions{}) {
		if err != nil {
			slog.Default().Error("the watch ended", "error", err)
			return
		}
		fmt.Println(change.Type, change.InstanceID, change.Instance.VM.InstanceState)
	}
}

// Look at what failed, page by page.
func ExampleController_EachInstance() {
	c, _ := client.NewController("http://build.example:8090", client.Options{})
	for item, err := range c.EachInstance(context.Background(), client.ListOptions{Filter: "state:error age>10m"}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(item.InstanceID, item.VM.Message)
	}
}

// Save a running instance as the next version of a template.
func ExampleController_Save() {
	c, _ := client.NewController("http://build.example:8090", client.Options{})
	ctx := context.Background()
	request, err := c.Save(ctx, client.SaveRequest{InstanceID: "0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22", Tag: "v2", TargetID: "c0847bc9-5d2d-4dbc-ba6a-240f7ff08032"})
	if err == nil {
		_, err = c.WaitSaved(ctx, request, nil)
	}
	fmt.Println(err)
}
