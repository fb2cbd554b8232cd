# SPDX-License-Identifier: Apache-2.0
# The lockstep program in an image. Its steps are those of ./dev.
#
#     docker build -t lockstep .
#     docker run --rm lockstep train lenet --data synthetic:1x28x28:10:6000
#
# With CUDA, on an image that has nvcc (Debian's or Ubuntu's):
#
#     docker build -t lockstep --build-arg BUILD_IMAGE=nvidia/cuda:13.0.1-devel-ubuntu22.04 \
#         --build-arg IMAGE=ubuntu:22.04 --build-arg CUDA=ON .
ARG BUILD_IMAGE=debian:12-slim
ARG IMAGE=debian:12-slim

FROM ${BUILD_IMAGE} AS build
ARG CUDA=OFF
# Versions are the distribution's: it is pinned by the image.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git python3 \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /lockstep
COPY . .
RUN ./dev package -DLOCKSTEP_CUDA=${CUDA}

FROM ${IMAGE}
# libtorch, and the libraries of CUDA that it loads, out of the environment that ./dev has set up.
COPY --from=build /lockstep/.venv-*/lib/python3*/site-packages/torch/lib /usr/lib/lockstep/torch/lib
COPY --from=build /lockstep/.venv-*/lib/python3*/site-packages/nvidia /usr/lib/lockstep/nvidia
COPY --from=build /lockstep/build/package/lockstep_*.deb /tmp/
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/lockstep_*.deb \
    && rm -rf /var/lib/apt/lists/* /tmp/lockstep_*.deb \
    && useradd --create-home --uid 1000 lockstep
USER 1000
WORKDIR /home/lockstep
ENTRYPOINT ["lockstep"]
