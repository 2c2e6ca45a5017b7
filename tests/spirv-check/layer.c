// A Vulkan layer that gives the driver an empty shader instead of every compute shader.
//
// A software driver that crashes on a valid shader ends the program before the next one is made. Under this layer all of them are made, and what a
// program dumps of them can be validated. Nothing is computed.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

static PFN_vkGetInstanceProcAddr next_instance;
static PFN_vkGetDeviceProcAddr next_device;

// void main() {}, with one unit in a workgroup.
static const uint32_t EMPTY[] = {
    0x07230203, 0x00010000, 0, 5, 0,
    (2 << 16) | 17, 1,                             // OpCapability Shader
    (3 << 16) | 14, 0, 1,                          // OpMemoryModel Logical GLSL450
    (5 << 16) | 15, 5, 3, 0x6e69616d, 0,           // OpEntryPoint GLCompute %3 "main"
    (6 << 16) | 16, 3, 17, 1, 1, 1,                // OpExecutionMode %3 LocalSize 1 1 1
    (2 << 16) | 19, 1,                             // %1 = OpTypeVoid
    (3 << 16) | 33, 2, 1,                          // %2 = OpTypeFunction %1
    (5 << 16) | 54, 1, 3, 0, 2,                    // %3 = OpFunction %1 None %2
    (2 << 16) | 248, 4,                            // %4 = OpLabel
    (1 << 16) | 253,                               // OpReturn
    (1 << 16) | 56,                                // OpFunctionEnd
};

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *allocator,
                                                      VkInstance *instance) {
    VkLayerInstanceCreateInfo *link = (VkLayerInstanceCreateInfo *)info->pNext;
    while (link && !(link->sType == VK_STRUCTURE_TYPE_LOADER_INSTANCE_CREATE_INFO && link->function == VK_LAYER_LINK_INFO))
        link = (VkLayerInstanceCreateInfo *)link->pNext;
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    next_instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)next_instance(NULL, "vkCreateInstance");
    return create(info, allocator, instance);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical, const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator, VkDevice *device) {
    VkLayerDeviceCreateInfo *link = (VkLayerDeviceCreateInfo *)info->pNext;
    while (link && !(link->sType == VK_STRUCTURE_TYPE_LOADER_DEVICE_CREATE_INFO && link->function == VK_LAYER_LINK_INFO))
        link = (VkLayerDeviceCreateInfo *)link->pNext;
    if (!link) return VK_ERROR_INITIALIZATION_FAILED;
    PFN_vkGetInstanceProcAddr instance = link->u.pLayerInfo->pfnNextGetInstanceProcAddr;
    next_device = link->u.pLayerInfo->pfnNextGetDeviceProcAddr;
    link->u.pLayerInfo = link->u.pLayerInfo->pNext;
    PFN_vkCreateDevice create = (PFN_vkCreateDevice)instance(NULL, "vkCreateDevice");
    return create(physical, info, allocator, device);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count,
                                                       const VkComputePipelineCreateInfo *infos,
                                                       const VkAllocationCallbacks *allocator, VkPipeline *pipelines) {
    PFN_vkCreateShaderModule create_module = (PFN_vkCreateShaderModule)next_device(device, "vkCreateShaderModule");
    PFN_vkCreateComputePipelines create = (PFN_vkCreateComputePipelines)next_device(device, "vkCreateComputePipelines");
    VkShaderModuleCreateInfo module_info = {
        .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = sizeof EMPTY, .pCode = EMPTY};
    VkShaderModule empty;
    VkResult result = create_module(device, &module_info, allocator, &empty);
    if (result != VK_SUCCESS) return result;
    VkComputePipelineCreateInfo *replaced = malloc(count * sizeof *replaced);
    if (!replaced) return VK_ERROR_OUT_OF_HOST_MEMORY;
    memcpy(replaced, infos, count * sizeof *replaced);
    for (uint32_t i = 0; i < count; i++) {
        replaced[i].stage.pNext = NULL;
        replaced[i].stage.module = empty;
        replaced[i].stage.pName = "main";
        replaced[i].stage.pSpecializationInfo = NULL;
    }
    result = create(device, cache, count, replaced, allocator, pipelines);
    free(replaced);
    return result;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL device_function(VkDevice device, const char *name) {
    if (!strcmp(name, "vkGetDeviceProcAddr")) return (PFN_vkVoidFunction)device_function;
    if (!strcmp(name, "vkCreateComputePipelines")) return (PFN_vkVoidFunction)create_pipelines;
    return next_device(device, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL instance_function(VkInstance instance, const char *name) {
    if (!strcmp(name, "vkGetInstanceProcAddr")) return (PFN_vkVoidFunction)instance_function;
    if (!strcmp(name, "vkGetDeviceProcAddr")) return (PFN_vkVoidFunction)device_function;
    if (!strcmp(name, "vkCreateInstance")) return (PFN_vkVoidFunction)create_instance;
    if (!strcmp(name, "vkCreateDevice")) return (PFN_vkVoidFunction)create_device;
    if (!strcmp(name, "vkCreateComputePipelines")) return (PFN_vkVoidFunction)create_pipelines;
    return instance ? next_instance(instance, name) : NULL;
}

VK_LAYER_EXPORT VKAPI_ATTR VkResult VKAPI_CALL vkNegotiateLoaderLayerInterfaceVersion(VkNegotiateLayerInterface *interface) {
    interface->loaderLayerInterfaceVersion = 2;
    interface->pfnGetInstanceProcAddr = instance_function;
    interface->pfnGetDeviceProcAddr = device_function;
    interface->pfnGetPhysicalDeviceProcAddr = NULL;
    return VK_SUCCESS;
}
