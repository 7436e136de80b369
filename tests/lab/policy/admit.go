// SPDX-License-Identifier: Apache-2.0
// Sends pods through Kubernetes' own admission plug-in MutatingAdmissionPolicy:
//
//	admit SCHEMAS FILE...    prints each pod of the files as JSON
//
// The files have the policy, its binding, the namespaces and the pods. SCHEMAS is a directory with
// OpenAPI files, as client-go reads them for its tests. The plug-in is the kube-apiserver's, and its
// client is client-go's fake one. If the plug-in refuses a pod, its error is printed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/discovery"
	dynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
)

// The fake client has no OpenAPI schemas.
type client struct{ *fake.Clientset }
type schemas struct{ discovery.DiscoveryInterface }

func (c client) Discovery() discovery.DiscoveryInterface { return schemas{c.Clientset.Discovery()} }
func (schemas) OpenAPIV3() openapi.Client                { return openapitest.NewFileClient(os.Args[1]) }

func read(names []string) (objects []runtime.Object, pods []*core.Pod, err error) {
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, nil, err
		}
		documents := yaml.NewYAMLReader(bufio.NewReader(file))
		for {
			text, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, nil, err
			}
			object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			if pod, is := object.(*core.Pod); is {
				pods = append(pods, pod)
			} else {
				objects = append(objects, object)
			}
		}
	}
	return objects, pods, nil
}

func start(ctx context.Context, objects []runtime.Object) (*mutating.Plugin, error) {
	plugin, err := mutating.NewPlugin(nil)
	if err != nil {
		return nil, err
	}
	clientset := client{fake.NewClientset(objects...)}
	factory := informers.NewSharedInformerFactory(clientset, 0)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{core.SchemeGroupVersion})
	mapper.Add(core.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	plugin.SetEnabled(true)
	plugin.SetExternalKubeClientSet(clientset)
	plugin.SetExternalKubeInformerFactory(factory)
	plugin.SetRESTMapper(mapper)
	plugin.SetDynamicClient(dynamic.NewSimpleDynamicClient(scheme.Scheme))
	plugin.SetDrainedNotification(ctx.Done())
	plugin.SetAuthorizer(authorizerfactory.NewAlwaysAllowAuthorizer())
	if err := plugin.ValidateInitialization(); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if !plugin.WaitForReady() {
		return nil, errors.New("the plug-in is not ready")
	}
	time.Sleep(2 * time.Second) // until it has compiled the policy and the schemas
	return plugin, nil
}

func admit(ctx context.Context, plugin *mutating.Plugin, pod *core.Pod) error {
	attributes := admission.NewAttributesRecord(
		pod, nil, core.SchemeGroupVersion.WithKind("Pod"), pod.Namespace, pod.Name,
		core.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false,
		&user.DefaultInfo{Name: "alice"})
	return plugin.Admit(ctx, attributes, admission.NewObjectInterfacesFromScheme(scheme.Scheme))
}

func run() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	objects, pods, err := read(os.Args[2:])
	if err != nil {
		return err
	}
	plugin, err := start(ctx, objects)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		var answer any = pod
		if err := admit(ctx, plugin, pod); err != nil {
			answer = err.Error()
		}
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "admit:", err)
		os.Exit(1)
	}
}
